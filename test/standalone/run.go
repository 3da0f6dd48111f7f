package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyTime is what each program gets to become ready.
const readyTime = 30 * time.Second

// run starts the mesh and stops it after a signal, or when a program that it
// cannot do without ends. It returns when no process is left.
func run(ctx context.Context, o options) error {
	p, err := newPlan(o)
	if err != nil {
		return err
	}
	if err := p.addressesFree(); err != nil {
		return err
	}
	if o.build {
		fmt.Fprintln(o.out, "building ...")
		if err := build(ctx, o); errors.Is(err, errInterrupted) {
			return nil
		} else if err != nil {
			return err
		}
	}
	g := newGroup(o.log, len(p.programs))
	err = p.watch(ctx, o, g)
	fmt.Fprintln(o.out, "\nstopping ...")
	hurry := make(chan struct{})
	done := make(chan struct{})
	go func() {
		select {
		case <-o.signals:
			close(hurry)
		case <-done:
		}
	}()
	g.stop(hurry)
	close(done)
	if len(g.running) > 0 {
		err = errors.Join(err, fmt.Errorf("%d processes are still there", len(g.running)))
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// build builds the programs; a signal meanwhile gives errInterrupted.
func build(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", o.bin+string(filepath.Separator), "./cmd/xds-server", "./cmd/dataplane", "./test/echo")
	cmd.Stdout, cmd.Stderr = o.log, o.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Second
	built := make(chan error, 1)
	go func() { built <- cmd.Run() }()
	select {
	case err := <-built:
		if err != nil {
			return fmt.Errorf("go build: %w", err)
		}
		return nil
	case <-o.signals:
		cancel()
		return errors.Join(errInterrupted, <-built)
	}
}

// addressesFree finds out before anything starts whether each address can be had.
func (p *plan) addressesFree() error {
	var taken []error
	inUse := false
	for _, program := range p.programs {
		for _, address := range program.listens {
			listener, err := net.Listen("tcp", address)
			if err == nil {
				listener.Close()
				continue
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				err, inUse = errors.New("already in use"), true
			}
			taken = append(taken, fmt.Errorf("%s of %s: %w", address, program.name, err))
		}
	}
	if inUse {
		taken = append(taken, errors.New("does a mesh run already? bin/standalone --help lists how to choose others; those of the backends are in backends.yaml"))
	}
	return errors.Join(taken...)
}

// watch starts the programs, each once the one before it is ready, explains what to
// do when all are, and returns nil after a signal.
func (p *plan) watch(ctx context.Context, o options, g *group) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ready := make(chan error, 1)
	next := 0
	launch := func() error {
		program := p.programs[next]
		next++
		if err := g.start(program); err != nil {
			return fmt.Errorf("start %s: %w", program.name, err)
		}
		wg.Go(func() { ready <- program.awaitReady(ctx) })
		return nil
	}
	if err := launch(); err != nil {
		return err
	}
	for {
		select {
		case <-o.signals:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ready:
			if err == nil && next < len(p.programs) {
				err = launch()
			} else if err == nil {
				fmt.Fprint(o.out, p.guide(o, g.pid))
			}
			if err != nil {
				return err
			}
		case e := <-g.ended:
			g.forget(e)
			how := "exit status 0"
			if e.err != nil {
				how = e.err.Error()
			}
			if e.program.essential {
				return fmt.Errorf("%s ended (%s)", e.program.name, how)
			}
			fmt.Fprintf(o.out, "%s ended (%s); to bring it back: %s\n", e.program.name, how, e.program.line())
		}
	}
}

// line is the program as one would type it.
func (p program) line() string { return p.command + " " + strings.Join(p.args, " ") }

// awaitReady asks until the program answers 200.
func (p program) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		reason := ask(ctx, client, p.ready)
		if reason == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w", p.name, readyTime, reason)
		case <-ticker.C:
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}
