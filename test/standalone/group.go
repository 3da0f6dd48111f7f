package main

import (
	"io"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

const (
	// lastTime is what the process that was started last gets to end before the others are told.
	lastTime = 1200 * time.Millisecond
	// politeTime is what the others get to end by themselves.
	politeTime = time.Second
	// killTime is what the kernel gets to take away those that did not.
	killTime = 500 * time.Millisecond
)

// group is the processes that run. It belongs to one goroutine, locked to its
// thread (start ties each child to it); one goroutine for each process waits for its end.
type group struct {
	output  io.Writer
	running []process
	ended   chan ending // its sender never waits: there is room for every process
}

// process is a program that runs.
type process struct {
	program program
	cmd     *exec.Cmd
}

// ending is a process that has ended; err as exec.Cmd.Wait has it.
type ending struct {
	process
	err error
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
	started := process{p, cmd}
	g.running = append(g.running, started)
	go func() { g.ended <- ending{started, cmd.Wait()} }()
	return nil
}

// forget takes a process that has ended off the list.
func (g *group) forget(e ending) {
	g.running = slices.DeleteFunc(g.running, func(r process) bool { return r.cmd == e.cmd })
}

// pid gives the process of a program by its name; 0 where it does not run.
func (g *group) pid(name string) int {
	for _, r := range g.running {
		if r.program.name == name {
			return r.cmd.Process.Pid
		}
	}
	return 0
}

// stop ends all processes: first the one that was started last, which uses the
// others, then the rest; politely, and in the end, or when hurry closes, by force. It
// returns when they are gone, within lastTime + politeTime + killTime.
func (g *group) stop(hurry <-chan struct{}) {
	if len(g.running) > 0 {
		g.signal(syscall.SIGTERM, g.running[len(g.running)-1])
		g.wait(lastTime, hurry, len(g.running)-1)
	}
	g.signal(syscall.SIGTERM, g.running...)
	if !g.wait(politeTime, hurry, 0) {
		g.signal(syscall.SIGKILL, g.running...)
		g.wait(killTime, nil, 0)
	}
}

// signal sends to each of the processes and whatever it has started.
func (g *group) signal(s syscall.Signal, processes ...process) {
	for _, r := range processes {
		// The only error is that it is gone already.
		_ = syscall.Kill(-r.cmd.Process.Pid, s)
	}
}

// wait reports whether within the time, and before hurry, only so many processes were left.
func (g *group) wait(limit time.Duration, hurry <-chan struct{}, left int) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(g.running) > left {
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
