//go:build linux

package main

import (
	"context"
	"errors"
	"time"
)

// run is one contender and what was measured.
type run struct {
	Contender string `json:"contender"`
	Version   string `json:"version,omitempty"`
	// Each has an entry for each round: CPU time of the proxy by request, requests by
	// second, how busy the proxy's CPU was with it, and latencies.
	CPUMicros []float64 `json:"cpuMicros"`
	Rate      []float64 `json:"rate"`
	Busy      []float64 `json:"busy"`
	P50Micros []float64 `json:"p50Micros"`
	P99Micros []float64 `json:"p99Micros"`
	// Resident is the greatest resident set seen after a round, in bytes.
	Resident uint64 `json:"resident"`

	proxy *proxy
}

// warm is how long a round runs before it counts.
const warm = 300 * time.Millisecond

// errNothing is a round that says nothing: on a busy machine the proxy may not have run at all.
var errNothing = errors.New("no request was answered")

// round loads the proxy for a while.
func (r *run) round(ctx context.Context, s setup, w workload) error {
	warming, cancel := context.WithTimeout(ctx, warm)
	defer cancel()
	if _, err := w.load(warming, s, r.proxy.address); err != nil {
		return err
	}
	before, err := cpuTime(r.proxy.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	o, err := w.load(timed, s, r.proxy.address)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := cpuTime(r.proxy.pid)
	if err != nil {
		return err
	}
	if o.requests == 0 {
		return errNothing
	}
	used := after - before
	r.CPUMicros = append(r.CPUMicros, used.Seconds()*1e6/float64(o.requests))
	r.Rate = append(r.Rate, float64(o.requests)/took.Seconds())
	r.Busy = append(r.Busy, used.Seconds()/took.Seconds())
	r.P50Micros = append(r.P50Micros, o.latency.quantile(.5).Seconds()*1e6)
	r.P99Micros = append(r.P99Micros, o.latency.quantile(.99).Seconds()*1e6)
	rss, err := resident(r.proxy.pid)
	r.Resident = max(r.Resident, rss)
	return err
}
