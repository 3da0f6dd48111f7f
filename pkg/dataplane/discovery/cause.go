package discovery

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cause reduces what gRPC says of a failed stream to what a person needs beside
// the server's address: gRPC wraps a refused connection four times over. The
// code stays where it says more than that the server is not available.
func cause(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	text := s.Message()
	if inner, found := strings.CutPrefix(text, `connection error: desc = "`); found {
		text = strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `\"`, `"`)
	}
	if _, dial, found := strings.Cut(text, "Error while dialing: "); found {
		text = dial[strings.LastIndex(dial, ": ")+1:]
	}
	text = strings.TrimSpace(text)
	if s.Code() == codes.Unavailable {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %s", s.Code(), text)
}
