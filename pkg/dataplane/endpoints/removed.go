package endpoints

import (
	"math"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// drain is what established connections get when their endpoint leaves dc; below 0 is for ever.
func (s *Set) drain(dc *discovery.Cluster) time.Duration {
	if dc.Drain != nil {
		if *dc.Drain == 0 {
			return -1
		}
		return *dc.Drain
	}
	return s.cfg.Drain
}

// leave notes that the endpoint is listed no more and when its drain ends.
func (e *endpoint) leave(now time.Time, drain time.Duration) {
	until := int64(math.MaxInt64)
	if drain >= 0 {
		until = now.Add(drain).UnixNano()
	}
	e.left.Store(until)
}

// Removed tells whether the endpoint has left the cluster, or was replaced under the same address.
func (l *Lease) Removed() bool { return l.endpoint.left.Load() != 0 }

// Overdue tells whether it has, and the time that the cluster gives to drain
// is over: then connections break because we close them.
func (l *Lease) Overdue() bool {
	until := l.endpoint.left.Load()
	return until != 0 && time.Now().UnixNano() >= until
}
