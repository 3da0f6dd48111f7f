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
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// start runs a program until the test ends, and keeps what it writes to standard error.
func start(t *testing.T, cmd *exec.Cmd) *meshtest.Log {
	t.Helper()
	log := &meshtest.Log{}
	cmd.Stderr, cmd.SysProcAttr, cmd.WaitDelay = log, childAttributes(), 5*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s ended before the test did: %v", cmd.Path, cmd.Wait())
		} else {
			_ = cmd.Wait() // it was killed
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd.Path, tail(log.String(), 100))
		}
	})
	return log
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

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
		fmt.Sprintf("CALL_TIMEOUT_MS=%d", callTimeout.Milliseconds())), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
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
