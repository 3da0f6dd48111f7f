package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

func TestCause(t *testing.T) {
	dialing := func(text string) error {
		return status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: `+text+`"`)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{dialing("dial tcp 127.0.0.1:1: connect: connection refused"), "connection refused"},
		{dialing("dial tcp: lookup nobody.example on 10.0.0.1:53: no such host"), "no such host"},
		{dialing(`dial tcp 127.0.0.1:1: connect: odd \"word\"`), `odd "word"`},
		{status.Error(codes.Unavailable, "sources are not synced"), "sources are not synced"},
		{status.Error(codes.PermissionDenied, "not you"), "PermissionDenied: not you"},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), "error reading server preface: EOF"},
		{errors.New("nothing was received for 12s"), "nothing was received for 12s"},
	} {
		if got := cause(c.err).Error(); got != c.want {
			t.Errorf("%v\n got %s\nwant %s", c.err, got, c.want)
		}
	}
}

// lines hands over what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestServerThatWasNeverReachedIsNotLost(t *testing.T) {
	addr := testaddr.Refused(t)
	logged := make(lines, 1)
	c, err := New(Config{
		NodeID: "n", Servers: []string{addr}, Applier: newApplied(),
		Logger: hclog.New(&hclog.LoggerOptions{Output: logged, Level: hclog.Warn}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	line := <-logged
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(line, "control plane not reached: server="+addr) || !strings.Contains(line, `err="connection refused"`) {
		t.Errorf("logged %s", line)
	}
	if got, want := c.Status().LastError, fmt.Sprintf("%s: connection refused", addr); got != want {
		t.Errorf("last error %q, want %q", got, want)
	}
}

func TestServerThatGoesIsLost(t *testing.T) {
	logged := make(lines, 1)
	bubble(t, func(c *Config) { c.Logger = hclog.New(&hclog.LoggerOptions{Output: logged, Level: hclog.Warn}) }, func(w *world) {
		w.run()
		w.server.stop()
		if line := <-logged; !strings.Contains(line, "control plane lost; what is in force stays") {
			t.Errorf("logged %s", line)
		}
	})
}
