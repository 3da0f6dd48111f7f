package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
)

// answer is one line from the server process; its first one has the address.
type answer struct {
	Address string `json:"address,omitempty"`
	memory
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// serve is the server process of one contender. It obeys a command a line on
// stdin, and ends with its input.
func serve(ctx context.Context, s setup) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWorld(s)
	c, err := newContender(ctx, s.Contenders[0], w)
	if err != nil {
		return err
	}
	g := grpc.NewServer(c.options()...)
	c.register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()

	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(answer{Address: listener.Addr().String()}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := out.Encode(obey(ctx, c, w, in.Text())); err != nil {
			return err
		}
	}
	cancel()
	g.Stop()
	return <-served
}

// obey answers "memory": what is in use after a collection; "change N": takes
// step N of the world, and gives the CPU time from before it; "quiet": waits
// until the process is idle, and gives the CPU time.
func obey(ctx context.Context, c contender, w *world, line string) (a answer) {
	var command string
	var step int
	var err error
	fmt.Sscan(line, &command, &step) //nolint:errcheck // only change has a number
	switch command {
	case "memory":
		a.memory, err = memoryInUse()
	case "change":
		changed := w.change(step)
		if a.CPUSeconds, err = cpuSeconds(); err == nil {
			err = c.apply(ctx, changed)
		}
	case "quiet":
		a.CPUSeconds, err = quietCPUSeconds(ctx)
	default:
		err = fmt.Errorf("command %q is unknown", line)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
