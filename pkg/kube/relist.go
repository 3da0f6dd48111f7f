package kube

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// relistReason says why a kind is listed anew; also the metric's label, and
// what the audit shows.
type relistReason string

const (
	// silent: a watch said nothing, and did not end, for longer than it was asked to last.
	silent relistReason = "silent"
	// deaf: a live read shows a change that the watch did not deliver.
	deaf relistReason = "deaf"
	// rewound: the server went back to an older state.
	rewound relistReason = "rewound"
	// noAnswer: a list request was not answered in time.
	noAnswer relistReason = "no-answer"
)

var relistReasons = [...]relistReason{silent, deaf, rewound, noAnswer}

func newRelists(r prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshmesh_source_relists_total",
		Help: "Listings of a kind that were begun anew because its watch or list could not be trusted, by reason.",
	}, []string{"reason"})
	for _, reason := range relistReasons {
		c.WithLabelValues(string(reason))
	}
	if r != nil {
		r.MustRegister(c)
	}
	return c
}

// restarts ends a feed's Reflector, so that another one lists anew. A reason
// that turns out to be wrong again and again is heeded less and less often.
type restarts struct {
	mu sync.Mutex // guards all below
	// cancel ends the Reflector in use; nil while there is none.
	cancel context.CancelFunc
	// reason is that of the listing under way; "" for none.
	reason relistReason
	// fruitless counts the listings in a row for the reason silent that found
	// nothing new; the next one is not before notBefore.
	fruitless int
	notBefore time.Time
}

// begin gives the context of the next Reflector.
func (r *restarts) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel = cancel
	return ctx, cancel
}

// ask gives what ends the Reflector in use, for a reason; nil where that is
// under way or has been done for nothing too often. What is to be noted of it
// is noted before that is called: the next listing may be there at once.
func (r *restarts) ask(reason relistReason, now time.Time) (end context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil || r.reason != "" || reason == silent && now.Before(r.notBefore) {
		return nil
	}
	end = r.cancel
	r.reason, r.cancel = reason, nil
	return end
}

// asked is the reason of the listing under way; "" for none.
func (r *restarts) asked() relistReason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// listed notes that a listing was delivered, and gives what it was asked for.
func (r *restarts) listed(news bool, now time.Time, interval time.Duration) relistReason {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := r.reason
	r.reason = ""
	switch {
	case news:
		r.fruitless = 0
	case reason == silent:
		r.fruitless++
		r.notBefore = now.Add(interval << min(r.fruitless, 5))
	}
	return reason
}
