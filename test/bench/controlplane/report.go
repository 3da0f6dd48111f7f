package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

// results is the JSON report.
type results struct {
	Setup setup  `json:"setup"`
	CPUs  int    `json:"cpus"`
	Go    string `json:"go"`
	Runs  []*run `json:"runs"`
}

// report writes the table to w, and JSON to the file unless its name is empty.
// Ratios are to the bare server, where it took part.
func report(w io.Writer, file string, r results) error {
	fmt.Fprintf(w, "%d nodes, %d services of %d endpoints, %d changes; %d CPUs, %s\n",
		r.Setup.Nodes, r.Setup.Services, r.Setup.Endpoints, r.Setup.Changes, r.CPUs, r.Go)
	floor := 0.0
	for _, run := range r.Runs {
		if run.Contender == "bare" {
			floor = median(run.CPUMillis)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "contender\tCPU median\tmean\tmax\tratio\tlatency\theap+stack/node\tafter changes\tRSS/node\tafter changes\t")
	for _, run := range r.Runs {
		ratio := "-"
		if floor > 0 {
			ratio = fmt.Sprintf("%.1f", median(run.CPUMillis)/floor)
		}
		fmt.Fprintf(t, "%s\t%.0f ms\t%.0f ms\t%.0f ms\t%s\t%.0f ms\t%.0f KB\t%.0f KB\t%.0f KB\t%.0f KB\t\n", run.Contender,
			median(run.CPUMillis), mean(run.CPUMillis), slices.Max(run.CPUMillis), ratio, median(run.LatencyMillis),
			perNode(run.Before.InUse, run.With.InUse, r.Setup.Nodes), perNode(run.Before.InUse, run.After.InUse, r.Setup.Nodes),
			perNode(run.Before.Resident, run.With.Resident, r.Setup.Nodes), perNode(run.Before.Resident, run.After.Resident, r.Setup.Nodes))
	}
	if err := t.Flush(); err != nil || file == "" {
		return err
	}
	bytes, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(bytes, '\n'), 0o644)
}

// perNode is in KB of 1,024 bytes.
func perNode(before, with uint64, nodes int) float64 {
	return (float64(with) - float64(before)) / 1024 / float64(nodes)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
