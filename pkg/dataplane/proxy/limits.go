package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// LimitsConfig is what Limits go by.
type LimitsConfig struct {
	// HeaderCount is how many fields a request's header may have, HeaderBytes
	// about how long it may be; 0 for any number, and net/http's limit.
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

// header gives the time for a header, and its greatest length (0: net/http's).
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

// body bounds the pauses in a request's body; the function it gives must be called when the request has ended.
func (l *Limits) body(src io.Reader, w http.ResponseWriter, r *http.Request) (io.Reader, func()) {
	if l == nil || l.cfg.BodyIdle <= 0 || !mustEnd(r) {
		return src, func() {}
	}
	b := &timedBody{Reader: src, stall: newStall(l.cfg.BodyIdle, http.NewResponseController(w).SetReadDeadline)}
	return b, func() { b.timer.Stop() }
}

// writer bounds the pauses in taking the response; nil without a limit.
func (l *Limits) writer(w http.ResponseWriter) *timedWriter {
	if l == nil || l.cfg.WriteIdle <= 0 {
		return nil
	}
	return &timedWriter{ResponseWriter: w, stall: newStall(l.cfg.WriteIdle, http.NewResponseController(w).SetWriteDeadline)}
}

// mustEnd tells whether a request's body is an upload. Others are streams, which
// may be silent for as long as both sides like: gRPC, and tunnels.
func mustEnd(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodConnect {
		return false
	}
	return r.ContentLength > 0
}

// stall ends one call that takes too long, by a deadline in the past. A deadline
// set ahead would end an HTTP/2 stream at its time, whether or not anything waits.
type stall struct {
	timer *time.Timer
	after time.Duration
	fired atomic.Bool
}

func newStall(after time.Duration, end func(time.Time) error) *stall {
	s := &stall{after: after}
	s.timer = time.AfterFunc(after, func() {
		s.fired.Store(true)
		_ = end(time.Unix(1, 0))
	})
	s.timer.Stop()
	return s
}

// timedBody bounds each read of the body.
type timedBody struct {
	io.Reader
	*stall
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.after)
	n, err := b.Reader.Read(p)
	b.timer.Stop()
	if err != nil && b.fired.Load() {
		err = &upstream.Error{Reason: upstream.BodyTimeout, Unanswered: true, Err: fmt.Errorf("no byte of the request body for %s", b.after)}
	}
	return n, err
}

// timedWriter bounds each write of the response.
type timedWriter struct {
	http.ResponseWriter
	*stall
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) Write(p []byte) (int, error) {
	w.timer.Reset(w.after)
	defer w.timer.Stop()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes by.
func (w *timedWriter) FlushError() error {
	w.timer.Reset(w.after)
	defer w.timer.Stop()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// slow gives the error of a client that took nothing for too long; nil when it did. w may be nil.
func (w *timedWriter) slow() *upstream.Error {
	if w == nil || !w.fired.Load() {
		return nil
	}
	return &upstream.Error{Reason: upstream.SlowReader, Err: fmt.Errorf("the client took nothing of the response for %s", w.after)}
}
