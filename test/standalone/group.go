package main

import (
	"io"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

const (
	// politeTime is what the processes get to end by themselves.
	politeTime = 2 * time.Second
	// killTime is what the kernel gets to take away those that did not.
	killTime = 500 * time.Millisecond
)

// group is the processes that run. It belongs to one goroutine, locked to its
// thread (start ties each child to it); one goroutine for each process waits for its end.
type group struct {
	output  io.Writer
	running []*exec.Cmd
	ended   chan ending // its sender never waits: there is room for every process
}

// ending is a process that has ended; err as exec.Cmd.Wait has it.
type ending struct {
	program program
	cmd     *exec.Cmd
	err     error
}

func newGroup(output io.Writer, size int) *group {
	return &group{output: output, ended: make(chan ending, size)}
}

// start starts p in a process group of its own, so that a terminal's Ctrl-C
// reaches only us and the order of stopping is ours.
func (g *group) start(p program) error {
	cmd := exec.Command(p.command, p.args...)
	cmd.Stdout, cmd.Stderr = g.output, g.output
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	g.running = append(g.running, cmd)
	go func() { g.ended <- ending{p, cmd, cmd.Wait()} }()
	return nil
}

// forget takes a process that has ended off the list.
func (g *group) forget(e ending) {
	g.running = slices.DeleteFunc(g.running, func(c *exec.Cmd) bool { return c == e.cmd })
}

// stop ends all processes: politely, and after politeTime, or when hurry
// receives, by force. It returns when they are gone, within politeTime + killTime.
func (g *group) stop(hurry <-chan struct{}) {
	g.signal(syscall.SIGTERM)
	if !g.wait(politeTime, hurry) {
		g.signal(syscall.SIGKILL)
		g.wait(killTime, nil)
	}
}

// signal sends to each process and whatever it has started.
func (g *group) signal(s syscall.Signal) {
	for _, c := range g.running {
		// The only error is that it is gone already.
		_ = syscall.Kill(-c.Process.Pid, s)
	}
}

// wait reports whether all processes ended within the time, and before hurry.
func (g *group) wait(limit time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(g.running) > 0 {
		select {
		case e := <-g.ended:
			g.forget(e)
		case <-timer.C:
			return false
		case <-hurry:
			return false
		}
	}
	return true
}
