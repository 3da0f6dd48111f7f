package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is one program of the control plane, which can be stopped and started again.
type process struct {
	name, path string
	args       []string
	log        string // a file
	cmd        *exec.Cmd
	ended      chan struct{}
}

// stopTime is how long a process may take to end by itself.
const stopTime = 5 * time.Second

func (p *process) start() error {
	file, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // the child has its own
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = file, file, filepath.Dir(p.log)
	// In a sandbox everything ends with the first process anyway.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log says why
	}()
	p.cmd, p.ended = cmd, ended
	return nil
}

// running tells whether it has been started and has not ended.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop ends it: SIGTERM, and SIGKILL where that takes too long.
func (p *process) stop() {
	p.end(syscall.SIGTERM)
}

// kill ends it with SIGKILL.
func (p *process) kill() {
	p.end(syscall.SIGKILL)
}

func (p *process) end(s syscall.Signal) {
	if !p.running() {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may just have ended
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// pause stops its clock, or lets it go on.
func (p *process) pause(pause bool) error {
	s := syscall.SIGCONT
	if pause {
		s = syscall.SIGSTOP
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// tail gives the last lines of its log.
func (p *process) tail(lines int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.SplitAfter(string(content), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
