package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// run is one contender: its server process, its nodes, and what was measured.
// The caller uses it from one goroutine.
type run struct {
	Contender string `json:"contender"`
	// CPUMillis and LatencyMillis have an entry for each change: CPU time of
	// the server process, and time until the last node acknowledged.
	CPUMillis     []float64 `json:"cpuMillis"`
	LatencyMillis []float64 `json:"latencyMillis"`
	// Memory before the nodes, with all of them connected, and after the changes.
	Before memory `json:"before"`
	With   memory `json:"with"`
	After  memory `json:"after"`

	setup   setup
	fleet   *fleet
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	cancel  context.CancelFunc
}

// start runs a server process for the contender and connects its nodes.
func start(ctx context.Context, s setup, name string) (*run, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{Contender: name, setup: s, cancel: cancel}
	err := r.launch(ctx)
	if err == nil {
		err = r.populate(ctx)
	}
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

func (r *run) launch(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r.process = exec.CommandContext(ctx, self, "--role", "server", "--contenders", r.Contender,
		"--services", strconv.Itoa(r.setup.Services), "--endpoints", strconv.Itoa(r.setup.Endpoints))
	r.process.Stderr = os.Stderr
	if r.in, err = r.process.StdinPipe(); err != nil {
		return err
	}
	out, err := r.process.StdoutPipe()
	if err != nil {
		return err
	}
	r.out = json.NewDecoder(bufio.NewReader(out))
	return r.process.Start()
}

// populate connects the nodes, and takes the memory before and after.
func (r *run) populate(ctx context.Context) error {
	hello, err := r.read()
	if err != nil {
		return err
	}
	before, err := r.ask("memory")
	if err != nil {
		return err
	}
	if r.fleet, err = connect(ctx, r.setup, hello.Address); err != nil {
		return err
	}
	if _, err := r.ask("quiet"); err != nil {
		return err
	}
	with, err := r.ask("memory")
	r.Before, r.With = before.memory, with.memory
	return err
}

// change takes one step of the world and waits until all nodes have it.
func (r *run) change(ctx context.Context, step int) error {
	r.fleet.expect(r.setup.Nodes)
	began := time.Now()
	before, err := r.ask(fmt.Sprint("change ", step))
	if err != nil {
		return err
	}
	if err := r.fleet.wait(ctx, r.setup.timeout); err != nil {
		return err
	}
	latency := time.Since(began)
	after, err := r.ask("quiet")
	if err != nil {
		return err
	}
	r.CPUMillis = append(r.CPUMillis, 1000*(after.CPUSeconds-before.CPUSeconds))
	r.LatencyMillis = append(r.LatencyMillis, 1000*latency.Seconds())
	return errors.Join(r.fleet.exact(), r.fleet.check(step))
}

// finish takes the memory after the changes.
func (r *run) finish() error {
	a, err := r.ask("memory")
	r.After = a.memory
	return err
}

// ask has the server process obey one command.
func (r *run) ask(command string) (answer, error) {
	if _, err := fmt.Fprintln(r.in, command); err != nil {
		return answer{}, fmt.Errorf("%s: %w", command, err)
	}
	return r.read()
}

func (r *run) read() (a answer, err error) {
	if err := r.out.Decode(&a); err != nil {
		return a, fmt.Errorf("server process: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("server process: %s", a.Error)
	}
	return a, nil
}

// stop ends the nodes and the server process, and waits for them.
func (r *run) stop() {
	r.cancel()
	if r.fleet != nil {
		r.fleet.wg.Wait()
	}
	if r.process != nil && r.process.Process != nil {
		r.process.Wait() //nolint:errcheck // it was killed
	}
}
