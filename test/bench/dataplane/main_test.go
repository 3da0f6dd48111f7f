//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The test binary stands in for the program when measure executes it as a proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "--role" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A small run of our own contenders: the load checks each answer.
func TestMeasure(t *testing.T) {
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip("taskset is missing: install util-linux")
	}
	for _, workload := range names(workloads) {
		t.Run(workload, func(t *testing.T) { testMeasure(t, workload) })
	}
}

func testMeasure(t *testing.T, workload string) {
	t.Helper()
	s := setup{
		Workload: workload, Connections: 4, Streams: 4, Body: 1024, Endpoints: 2, Rounds: 2, Duration: 200 * time.Millisecond,
		Contenders: []string{"relay", "reverseproxy", "floor"},
	}
	file := filepath.Join(t.TempDir(), "out.json")
	if err := measure(t.Context(), s, file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	for i, name := range s.Contenders {
		if run := r.Runs[i]; run.Contender != name || len(run.CPUMicros) != s.Rounds || run.CPUMicros[0] <= 0 || run.Rate[1] <= 0 {
			t.Errorf("%s has no results: %+v", name, run)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{.5: 500 * time.Microsecond, .99: 990 * time.Microsecond} {
		if got := h.quantile(q); got < want || got > want*9/8 {
			t.Errorf("quantile %v: %s, want %s", q, got, want)
		}
	}
}
