package interop

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// helper is a client program that answers each line with a line.
type helper struct {
	mu  sync.Mutex // guards what follows: one question at a time
	in  io.Writer
	out *bufio.Scanner
}

// startHelper starts a program of clients/ that speaks xDS with a bootstrap.
func startHelper(t *testing.T, bootstrapFile string, env []string, name string, args ...string) *helper {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+bootstrapFile,
		fmt.Sprintf("CALL_TIMEOUT_MS=%d", interoptest.CallTimeout.Milliseconds())), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	interoptest.Start(t, cmd)
	return &helper{in: in, out: bufio.NewScanner(out)}
}

// ask sends a line and gives the answer to it.
func (h *helper) ask(line string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		return "", err
	}
	if !h.out.Scan() {
		return "", errors.Join(io.ErrUnexpectedEOF, h.out.Err())
	}
	return h.out.Text(), nil
}

// call asks for one call, and gives the name of the backend that answered.
func (h *helper) call(target string) (string, error) {
	answer, err := h.ask("call " + target)
	if err != nil {
		return "", err
	}
	body, ok := strings.CutPrefix(answer, "ok ")
	if !ok {
		return "", errors.New(answer)
	}
	raw, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return "", err
	}
	var response grpc_testing.SimpleResponse
	if err := proto.Unmarshal(raw, &response); err != nil {
		return "", err
	}
	return response.GetServerId(), nil
}
