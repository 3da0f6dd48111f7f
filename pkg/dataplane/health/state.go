package health

import (
	"math/rand/v2"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// Result is what one check found.
type Result struct {
	Good bool
	// Decisive results turn the state at once, whatever the thresholds.
	Decisive bool
	// Why says what was bad, for people; "" for good.
	Why string
}

// State is what the results so far amount to. The zero value is unknown.
type State struct {
	known, healthy bool
	// row counts the results in a row that speak against the state.
	row uint32
}

// Known tells whether there was a result.
func (s *State) Known() bool { return s.known }

// Healthy is what the results amount to; false while unknown.
func (s *State) Healthy() bool { return s.healthy }

// Take takes a result in, and tells whether the state turned, or is now known.
func (s *State) Take(cfg discovery.HealthCheck, r Result) bool {
	if !s.known {
		s.known, s.healthy, s.row = true, r.Good, 0
		return true
	}
	if r.Good == s.healthy {
		s.row = 0
		return false
	}
	threshold := cfg.Unhealthy
	if r.Good {
		threshold = cfg.Healthy
	}
	if s.row++; s.row < threshold && (!r.Decisive || r.Good) {
		return false
	}
	s.healthy, s.row = r.Good, 0
	return true
}

// Wait is the time from a check to the next, with its jitter. traffic tells
// whether the cluster has had any.
func (s *State) Wait(cfg discovery.HealthCheck, traffic bool) time.Duration {
	d := cfg.Interval
	switch {
	case !traffic:
		d = cfg.NoTrafficInterval
	case s.known && !s.healthy && s.row > 0:
		d = cfg.HealthyEdgeInterval
	case s.known && !s.healthy:
		d = cfg.UnhealthyInterval
	case s.row > 0:
		d = cfg.UnhealthyEdgeInterval
	}
	if d <= 0 {
		d = cfg.Interval
	}
	return d + upTo(cfg.IntervalJitter) + upTo(d*time.Duration(cfg.JitterPercent)/100)
}

// upTo is 0 to d.
func upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}
