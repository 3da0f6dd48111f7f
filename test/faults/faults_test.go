package faults

import (
	"sync"
	"testing"
	"time"
)

// Every fault, at the scale that the flags ask for.
func TestFaults(t *testing.T) {
	s := short
	if *table != "" {
		s = full
	}
	var mu sync.Mutex // guards all
	all := make(map[string][]verdict)
	t.Run("cases", func(t *testing.T) {
		for _, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				verdicts := f.run(t, s, f.kinds())
				for _, v := range verdicts {
					f.check(t, s, v)
				}
				mu.Lock()
				defer mu.Unlock()
				all[f.name] = verdicts
			})
		}
	})
	if *table != "" {
		write(t, *table, all)
	}
}

// kinds gives the clients that a case has in this run.
func (f fault) kinds() []kind {
	kinds, otherwise := f.short, []kind{dataplane}
	if *table != "" {
		kinds, otherwise = f.clients, everyone
	}
	if kinds == nil {
		return otherwise
	}
	return kinds
}

// check holds a verdict against the bounds.
func (f fault) check(t *testing.T, s scale, v verdict) {
	t.Helper()
	t.Logf("%s: recovered %t in %.2f s; %d sent, %d failed, %d wrong; %.0f retries, %.0f refused; blind for %.1f s; audit: %s",
		v.client, v.recovered, v.recovery.Seconds(), v.sent, v.failed, v.wrong, v.counts.retries, v.counts.refused, v.blind.Seconds(), v.audit)
	for _, text := range v.failures {
		t.Logf("%s: %s", v.client, text)
	}
	if v.sent < int(s.watch/period)/2 {
		t.Errorf("%s: only %d requests were made", v.client, v.sent)
	}
	blind := s.blind()
	if f.later != nil {
		blind += f.later(s)
	}
	if v.blind > blind {
		t.Errorf("%s: the audit said fresh for %v while traffic was wrong, want at most %v", v.client, v.blind, blind)
	}
	// Requests that dial in the same instant, as when a node wakes, learn it together.
	if v.client == dataplane && int(v.counts.refused) > v.dead+callers-1 {
		t.Errorf("%s: %.0f requests met a refused connection, want one for each of %d dead endpoints, and what was under way", v.client, v.counts.refused, v.dead)
	}
	if f.beyond[v.client] != "" {
		return
	}
	bound := f.bound(s)
	if !v.recovered || v.recovery > bound {
		t.Errorf("%s: recovered %t, after %v, want within %v", v.client, v.recovered, v.recovery.Round(time.Millisecond), bound)
	}
	if v.late > 0 {
		t.Errorf("%s: %d requests failed or were answered by the wrong instance although %v were over", v.client, v.late, bound)
	}
}
