// Command controlplane measures what one changed endpoint costs an xDS control
// plane: the CPU time of the server process for the change, and the memory the
// server keeps for each connected node. It runs several contenders side by
// side, and their changes take turns, so that a noisy machine disturbs all of
// them alike. What counts is the ratio between contenders of one run.
//
// Each contender is a server in a process of its own (this program, executed
// again with --role server). All nodes live in the first process: every node
// has its own TCP connection over loopback and one delta ADS stream on it,
// subscribes to all clusters by wildcard and to all their assignments by name,
// acknowledges what it gets, and keeps nothing.
//
// A change moves one endpoint of one service to another port. Its CPU time
// runs from just before the change is applied until every node has
// acknowledged it and the server has gone quiet, so it holds the handling of
// the acknowledgements, and whatever garbage collection falls into that time.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// setup is what a run is asked to do; the child processes get the same.
type setup struct {
	Nodes      int      `json:"nodes"`
	Services   int      `json:"services"`
	Endpoints  int      `json:"endpoints"`
	Changes    int      `json:"changes"`
	Contenders []string `json:"contenders"`
	timeout    time.Duration
}

func main() {
	var s setup
	f := pflag.NewFlagSet("controlplane", pflag.ExitOnError)
	f.IntVar(&s.Nodes, "nodes", 1000, "nodes per contender, each with its own connection")
	f.IntVar(&s.Services, "services", 1000, "services: one cluster and one assignment each")
	f.IntVar(&s.Endpoints, "endpoints", 5, "endpoints per service")
	f.IntVar(&s.Changes, "changes", 20, "changes per contender")
	f.StringSliceVar(&s.Contenders, "contenders", defaultContenders, "who takes part: "+strings.Join(contenderNames(), ", "))
	f.DurationVar(&s.timeout, "timeout", 5*time.Minute, "how long one step may take")
	file := f.String("json", "", "write the results to this file as JSON")
	role := f.String("role", "run", "run, or server: the process of one contender, driven through stdin and stdout")
	f.Parse(os.Args[1:]) //nolint:errcheck // ExitOnError

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := error(nil)
	if *role == "server" {
		err = serve(ctx, s)
	} else {
		err = measure(ctx, s, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// measure runs the whole comparison and writes the report.
func measure(ctx context.Context, s setup, file string) error {
	runs := make([]*run, 0, len(s.Contenders))
	for _, name := range s.Contenders {
		fmt.Fprintf(os.Stderr, "%s: connecting %d nodes\n", name, s.Nodes)
		r, err := start(ctx, s, name)
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		defer r.stop()
		runs = append(runs, r)
	}
	for i := range s.Changes {
		for j := range runs {
			// Another contender begins each round.
			if err := runs[(i+j)%len(runs)].change(ctx, i); err != nil {
				return fmt.Errorf("change %d of %s: %w", i, runs[(i+j)%len(runs)].Contender, err)
			}
		}
		fmt.Fprintf(os.Stderr, "\rchange %d of %d", i+1, s.Changes)
	}
	fmt.Fprintln(os.Stderr)
	for _, r := range runs {
		if err := r.finish(); err != nil {
			return fmt.Errorf("finish %s: %w", r.Contender, err)
		}
	}
	return report(os.Stdout, file, results{Setup: s, CPUs: runtime.NumCPU(), Go: runtime.Version(), Runs: runs})
}
