package health

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// The state turns exactly after the threshold of results in a row, whatever came before.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := discovery.DefaultHealthCheck
		cfg.Unhealthy = uint32(rapid.IntRange(1, 4).Draw(t, "unhealthy"))
		cfg.Healthy = uint32(rapid.IntRange(1, 4).Draw(t, "healthy"))
		var s State
		state, against := false, uint32(0)
		for i, good := range rapid.SliceOf(rapid.Bool()).Draw(t, "results") {
			turned := s.Take(cfg, Result{Good: good})
			switch {
			case i == 0:
				state, against = good, 0
			case good == state:
				against = 0
			default:
				against++
			}
			want := i == 0
			if threshold := map[bool]uint32{true: cfg.Unhealthy, false: cfg.Healthy}[state]; against == threshold {
				state, against, want = !state, 0, true
			}
			if s.Healthy() != state || turned != want {
				t.Fatalf("result %d: healthy %v turned %v, want %v %v", i, s.Healthy(), turned, state, want)
			}
		}
	})
}

func TestDecisive(t *testing.T) {
	var s State
	s.Take(discovery.DefaultHealthCheck, Result{Good: true})
	if !s.Take(discovery.DefaultHealthCheck, Result{Decisive: true}) || s.Healthy() {
		t.Error("one result that says so itself does not turn the state")
	}
}

func TestWait(t *testing.T) {
	cfg := discovery.DefaultHealthCheck
	cfg.Interval, cfg.UnhealthyInterval, cfg.UnhealthyEdgeInterval, cfg.HealthyEdgeInterval = 10*time.Second, 20*time.Second, time.Second, 2*time.Second
	good, bad := Result{Good: true}, Result{}
	for _, c := range []struct {
		name    string
		results []Result
		traffic bool
		want    time.Duration
	}{
		{"no traffic", nil, false, 60 * time.Second},
		{"healthy", []Result{good}, true, 10 * time.Second},
		{"one failure", []Result{good, bad}, true, time.Second},
		{"unhealthy", []Result{bad}, true, 20 * time.Second},
		{"coming back", []Result{bad, good}, true, 2 * time.Second},
	} {
		var s State
		for _, r := range c.results {
			s.Take(cfg, r)
		}
		for range 20 {
			if d := s.Wait(cfg, c.traffic); d < c.want || d > c.want+c.want/10 {
				t.Errorf("%s: %s, want %s and up to a tenth", c.name, d, c.want)
			}
		}
	}
}
