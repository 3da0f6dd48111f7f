package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// LimitsConfig is what Limits go by.
type LimitsConfig struct {
	// HeaderCount is how many fields a request's header may have, HeaderBytes
	// about how long it may be; 0 for any number, and the relays' limits.
	HeaderCount, HeaderBytes int
	// HeaderTime bounds the reading of a header; 0 is 30 s.
	HeaderTime time.Duration
	// BodyIdle bounds a pause in a request's body, WriteIdle one in the client's
	// taking of the response; 0 for never.
	BodyIdle, WriteIdle time.Duration
	// Overloaded tells that new work must be shed; may be nil.
	Overloaded func() bool
}

// Limits refuse what asks for too much, and end requests whose client stalls. A nil *Limits has none.
type Limits struct {
	cfg     LimitsConfig
	reached *prometheus.CounterVec
}

// NewLimits registers the counter. It fails if that is registered already.
func NewLimits(cfg LimitsConfig, r prometheus.Registerer) (*Limits, error) {
	cfg.HeaderTime = cmp.Or(cfg.HeaderTime, defaultHeaderTime)
	l := &Limits{cfg: cfg, reached: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshmesh_limits_reached_total",
		Help: "Connections and requests that were refused or ended because a limit was reached.",
	}, []string{"reason"})}
	if err := r.Register(l.reached); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return l, nil
}

const defaultHeaderTime = 30 * time.Second

// Count counts a limit that was reached.
func (l *Limits) Count(r upstream.Reason) { l.reached.WithLabelValues(string(r)).Inc() }

// ended counts what ended, where its reason is a limit.
func (l *Limits) ended(r upstream.Reason) {
	if l == nil {
		return
	}
	switch r { //nolint:exhaustive // the limits
	case upstream.Overload, upstream.BodyTooLarge, upstream.HeaderLimit, upstream.HeaderTimeout, upstream.BodyTimeout, upstream.SlowReader, upstream.IdleTimeout,
		upstream.ConnectionLimit:
		l.Count(r)
	}
}

// header gives the time for a header, and its greatest length (0: the relay's).
func (l *Limits) header() (time.Duration, int) {
	if l == nil {
		return defaultHeaderTime, 0
	}
	return l.cfg.HeaderTime, l.cfg.HeaderBytes
}

// idle gives the bounds of pauses in a request's body and in taking the response; 0 for none.
func (l *Limits) idle() (body, write time.Duration) {
	if l == nil {
		return 0, 0
	}
	return l.cfg.BodyIdle, l.cfg.WriteIdle
}

// overloaded gives why new work is shed; nil when it is not.
func (l *Limits) overloaded() *upstream.Error {
	if l == nil || l.cfg.Overloaded == nil || !l.cfg.Overloaded() {
		return nil
	}
	return &upstream.Error{
		Reason: upstream.Overload, Unsent: true, Unanswered: true,
		Err: errors.New("the proxy holds as much memory as it may"),
	}
}

// judge gives why a request with so many fields is refused; nil when it is not.
func (l *Limits) judge(count int) *upstream.Error {
	if e := l.overloaded(); e != nil || l == nil || l.cfg.HeaderCount <= 0 || count <= l.cfg.HeaderCount {
		return e
	}
	return &upstream.Error{
		Reason: upstream.HeaderLimit, Unsent: true, Unanswered: true,
		Err: fmt.Errorf("%d header fields, %d are allowed", count, l.cfg.HeaderCount),
	}
}
