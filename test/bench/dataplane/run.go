//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// run is one contender and what was measured.
type run struct {
	Contender string `json:"contender"`
	Version   string `json:"version,omitempty"`
	// Each has an entry for each round: CPU time of the proxy by unit (see workload), units by
	// second, how busy the proxy's CPU was with it, and latencies.
	CPUMicros []float64 `json:"cpuMicros,omitempty"`
	Rate      []float64 `json:"rate,omitempty"`
	Busy      []float64 `json:"busy,omitempty"`
	P50Micros []float64 `json:"p50Micros,omitempty"`
	P99Micros []float64 `json:"p99Micros,omitempty"`
	// IdleBytes is the memory by idle connection.
	IdleBytes []float64 `json:"idleBytes,omitempty"`
	// Resident is the greatest resident set seen after a round, in bytes.
	Resident uint64 `json:"resident"`

	proxy *proxy
}

// warm is how long a round runs before it counts.
const warm = 300 * time.Millisecond

// patience is how long a round may take until something is answered: on a busy machine a proxy may not run at all for a while.
const patience = 30 * time.Second

var errNothing = fmt.Errorf("no request was answered in %s", patience)

// round loads the proxy for s.Duration, and again until something was answered.
func (r *run) round(ctx context.Context, s setup, w workload) error {
	if w.load == nil {
		b, err := w.weigh(ctx, s, r.proxy)
		r.IdleBytes = append(r.IdleBytes, b)
		return err
	}
	warming, cancel := context.WithTimeout(ctx, warm)
	defer cancel()
	if _, err := w.load(warming, s, r.proxy.address); err != nil {
		return err
	}
	before, err := cpuTime(r.proxy.pid)
	if err != nil {
		return err
	}
	profiled := r.profile(ctx, s)
	began := time.Now()
	var o outcome
	for o.done == 0 {
		timed, cancel := context.WithTimeout(ctx, s.Duration)
		o, err = w.load(timed, s, r.proxy.address)
		cancel()
		if err != nil {
			return err
		}
		if ctx.Err() != nil || o.done == 0 && time.Since(began) > patience {
			return cmp.Or(ctx.Err(), errNothing)
		}
	}
	took := time.Since(began)
	after, err := cpuTime(r.proxy.pid)
	if err != nil {
		return err
	}
	if err := profiled(); err != nil {
		return err
	}
	used, units := after-before, float64(o.done)/w.per
	r.CPUMicros = append(r.CPUMicros, used.Seconds()*1e6/units)
	r.Rate = append(r.Rate, units/took.Seconds())
	r.Busy = append(r.Busy, used.Seconds()/took.Seconds())
	r.P50Micros = append(r.P50Micros, o.latency.quantile(.5).Seconds()*1e6)
	r.P99Micros = append(r.P99Micros, o.latency.quantile(.99).Seconds()*1e6)
	rss, err := resident(r.proxy.pid)
	r.Resident = max(r.Resident, rss)
	return err
}

// profile has the round that begins profiled, where that was asked for and the proxy does it; what it gives waits for the profile.
func (r *run) profile(ctx context.Context, s setup) (wait func() error) {
	if r.proxy.profile == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		file := fmt.Sprintf("%s.%s.%s.%d", s.profile, r.Contender, s.Workload, len(r.CPUMicros)+1)
		done <- r.proxy.profile(ctx, max(1, int(s.Duration.Seconds())), file)
	}()
	return func() error { return <-done }
}
