package interoptest

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
)

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	// Log is what it wrote to standard error.
	Log *meshtest.Log

	t   testing.TB
	cmd *exec.Cmd

	mu    sync.Mutex // guards ended
	ended bool
}

// Start runs a program until the test ends, or until Kill, and keeps what it
// writes to standard error. A program that ends by itself fails the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Log: &meshtest.Log{}, t: t, cmd: cmd}
	cmd.Stderr, cmd.SysProcAttr, cmd.WaitDelay = p.Log, childAttributes(), 5*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd.Path, Tail(p.Log.String(), 100))
		}
	})
	return p
}

// Kill ends the process with SIGKILL, and waits for its end. It may be called again.
func (p *Process) Kill() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Errorf("%s ended before the test did: %v", p.cmd.Path, p.cmd.Wait())
	} else {
		_ = p.cmd.Wait() // it was killed
	}
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil && !p.ended {
		p.t.Errorf("signal %v to %s: %v", s, p.cmd.Path, err)
	}
}

// Tail gives the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
