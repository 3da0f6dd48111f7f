//go:build linux

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
	Setup   setup    `json:"setup"`
	CPUs    int      `json:"cpus"`
	Go      string   `json:"go"`
	Runs    []*run   `json:"runs"`
	Skipped []string `json:"skipped,omitempty"`
}

// report writes the table to w, and JSON to the file unless its name is empty. The
// cheapest stands first; ratios are to Envoy and HAProxy where they took part.
func report(w io.Writer, file string, r results) error {
	fmt.Fprintf(w, "%s: %d connections, %d bytes, %d endpoints, %d rounds of %s; %d CPUs, %s\n",
		r.Setup.Workload, r.Setup.Connections, r.Setup.Body, r.Setup.Endpoints, r.Setup.Rounds, r.Setup.Duration, r.CPUs, r.Go)
	reference := map[string]float64{}
	for _, run := range r.Runs {
		reference[run.Contender] = median(run.CPUMicros)
	}
	ratio := func(v float64, to string) string {
		if reference[to] == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", v/reference[to])
	}
	sorted := slices.Clone(r.Runs)
	slices.SortFunc(sorted, func(a, b *run) int { return int(1000 * (median(a.CPUMicros) - median(b.CPUMicros))) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "contender\tCPU/request\tlowest\tto Envoy\tto HAProxy\trequests/s\tCPU busy\tp50\tp99\tRSS\t")
	for _, run := range sorted {
		cpu := median(run.CPUMicros)
		fmt.Fprintf(t, "%s\t%.1f µs\t%.1f µs\t%s\t%s\t%.0f\t%.0f%%\t%.0f µs\t%.0f µs\t%.0f MB\t\n", run.Contender, cpu, slices.Min(run.CPUMicros),
			ratio(cpu, "envoy"), ratio(cpu, "haproxy"), median(run.Rate), 100*median(run.Busy), median(run.P50Micros), median(run.P99Micros), float64(run.Resident)/1e6)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range r.Skipped {
		fmt.Fprintln(w, "did not take part:", line)
	}
	if file == "" {
		return nil
	}
	bytes, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(bytes, '\n'), 0o644)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}
