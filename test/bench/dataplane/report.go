//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// results is the JSON report.
type results struct {
	CPUs      int       `json:"cpus"`
	Go        string    `json:"go"`
	Workloads []result  `json:"workloads"`
	Goals     []verdict `json:"goals"`
}

// result is that of one workload.
type result struct {
	Setup   setup    `json:"setup"`
	Runs    []*run   `json:"runs"`
	Skipped []string `json:"skipped,omitempty"`

	workload workload
}

// score is what counts in a workload, the less the better: CPU time in µs, the 99th
// percentile of latency in µs, or bytes; 0 where nothing was measured.
func (r result) score(contender string) float64 {
	i := slices.IndexFunc(r.Runs, func(run *run) bool { return run.Contender == contender })
	switch {
	case i < 0:
		return 0
	case r.workload.load == nil:
		return median(r.Runs[i].IdleBytes)
	case r.workload.paced:
		return median(r.Runs[i].P99Micros)
	}
	return median(r.Runs[i].CPUMicros)
}

// show gives a score with its unit.
func (r result) show(score float64) string {
	switch {
	case score == 0:
		return "-"
	case r.workload.load == nil:
		return fmt.Sprintf("%.1f KB", score/1e3)
	case score >= 1e4:
		return fmt.Sprintf("%.0f ms", score/1e3)
	}
	return fmt.Sprintf("%.1f µs", score)
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// report writes the workload's details, the best first.
func (r result) report(w io.Writer) {
	fmt.Fprintf(w, "%s: %s; %d connections, %d endpoints, %d rounds of %s\n",
		r.workload.name, r.workload.about, r.Setup.Connections, r.Setup.Endpoints, r.Setup.Rounds, r.Setup.Duration)
	sorted := slices.Clone(r.Runs)
	slices.SortFunc(sorted, func(a, b *run) int { return cmp.Compare(r.score(a.Contender), r.score(b.Contender)) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	unit := r.workload.unit
	if r.workload.load == nil {
		fmt.Fprintln(t, "contender\tmemory/"+unit+"\t")
		for _, run := range sorted {
			fmt.Fprintf(t, "%s\t%s\t\n", run.Contender, r.show(median(run.IdleBytes)))
		}
	} else {
		fmt.Fprintln(t, "contender\tCPU/"+unit+"\tlowest\t"+unit+"s/s\tCPU busy\tp50\tp99\tRSS\t")
		for _, run := range sorted {
			fmt.Fprintf(t, "%s\t%.1f µs\t%.1f µs\t%.3g\t%.0f%%\t%.0f µs\t%.0f µs\t%.0f MB\t\n", run.Contender, median(run.CPUMicros), slices.Min(run.CPUMicros),
				median(run.Rate), 100*median(run.Busy), median(run.P50Micros), median(run.P99Micros), float64(run.Resident)/1e6)
		}
	}
	_ = t.Flush() // to standard output
	for _, line := range r.Skipped {
		fmt.Fprintln(w, "did not take part:", line)
	}
	fmt.Fprintln(w)
}

// goal bounds ours by somebody else's.
type goal struct {
	workload, to string
	most         float64
}

var goals = []goal{
	{"http1", "envoy", .6},
	{"http1", "haproxy", 1.2},
	{"grpc", "envoy", .45},
	{"grpc", "haproxy", .9},
	{"tcp-bulk", "envoy", .45},
	{"tcp", "envoy", .9},
	{"latency", "envoy", 1},
	{"latency-grpc", "envoy", 1},
	{"idle", "envoy", 1},
	{"idle-grpc", "envoy", 1},
}

// verdict is a goal and what became of it.
type verdict struct {
	Workload  string  `json:"workload"`
	Contender string  `json:"contender"`
	To        string  `json:"to"`
	Most      float64 `json:"most"`
	Ratio     float64 `json:"ratio"`
	Reached   bool    `json:"reached"`
}

// judge gives a verdict of each goal that was measured.
func (r results) judge() (all []verdict) {
	for _, g := range goals {
		for _, w := range r.Workloads {
			for _, name := range []string{"freshmesh", "relay"} {
				ours, theirs := w.score(name), w.score(g.to)
				if w.workload.name == g.workload && ours > 0 && theirs > 0 {
					all = append(all, verdict{g.workload, name, g.to, g.most, ours / theirs, ours/theirs <= g.most})
				}
			}
		}
	}
	return all
}

// report writes one table of all to w, and JSON to the file unless its name is empty. In
// the table each cell has the score and in brackets its ratio to Envoy's.
func (r results) report(w io.Writer, file string) error {
	var who []string
	for _, one := range r.Workloads {
		for _, run := range one.Runs {
			if !slices.Contains(who, run.Contender) {
				who = append(who, run.Contender)
			}
		}
	}
	fmt.Fprintf(w, "%d CPUs, %s. CPU of the proxy by unit, 99th percentile of latency, or memory; in brackets the ratio to Envoy's.\n\n", r.CPUs, r.Go)
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprint(t, "| contender")
	for _, one := range r.Workloads {
		fmt.Fprint(t, "\t| "+one.workload.name+", a "+one.workload.unit)
	}
	fmt.Fprint(t, "\t|\n|---"+strings.Repeat("\t|---:", len(r.Workloads))+"\t|\n")
	for _, name := range who {
		fmt.Fprint(t, "| "+name)
		for _, one := range r.Workloads {
			score := one.score(name)
			cell := one.show(score)
			if score != 0 {
				cell += " (" + ratio(score, one.score("envoy")) + ")"
			}
			fmt.Fprint(t, "\t| "+cell)
		}
		fmt.Fprint(t, "\t|\n")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	r.Goals = r.judge()
	for _, v := range r.Goals {
		word := "reached"
		if !v.Reached {
			word = "MISSED"
		}
		fmt.Fprintf(w, "%s: %s is %.2f × %s, wanted ≤ %.2f: %s\n", v.Workload, v.Contender, v.Ratio, v.To, v.Most, word)
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
