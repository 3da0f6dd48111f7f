//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	s := setup{
		Connections: 4, Streams: 4, Body: 1024, Endpoints: 2, Rounds: 2, Duration: 200 * time.Millisecond, Rate: 200, Rest: 50 * time.Millisecond,
		contenders: []string{"freshmesh", "relay", "reverseproxy", "floor"},
	}
	file := filepath.Join(t.TempDir(), "out.json")
	if err := measure(t.Context(), s, workloadNames(), file); err != nil {
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
	if len(r.Workloads) != len(workloads) {
		t.Fatalf("%d workloads of %d", len(r.Workloads), len(workloads))
	}
	for i, one := range r.Workloads {
		w := workloads[i]
		want := len(s.contenders)
		if w.speaks == opaque {
			want = 2
		}
		if len(one.Runs) != want {
			t.Errorf("%s: %d contenders, want %d; %v", w.name, len(one.Runs), want, one.Skipped)
		}
		for _, run := range one.Runs {
			if w.load == nil && len(run.IdleBytes) != 1 || w.load != nil && (len(run.CPUMicros) != s.Rounds || run.CPUMicros[0] <= 0 || run.Rate[1] <= 0) {
				t.Errorf("%s: %s has no results: %+v", w.name, run.Contender, run)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	of := func(contender string, micros float64) *run {
		return &run{Contender: contender, CPUMicros: []float64{micros}}
	}
	w, _ := named("grpc")
	r := results{Workloads: []result{{workload: w, Runs: []*run{of("freshmesh", 5), of("envoy", 10), of("haproxy", 6)}}}}
	want := []verdict{
		{"grpc", "freshmesh", "envoy", .45, .5, false},
		{"grpc", "freshmesh", "haproxy", .9, 5. / 6, true},
	}
	if got := r.judge(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
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
