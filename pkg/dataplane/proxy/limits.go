package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// LimitsConfig is what Limits go by.
type LimitsConfig struct {
	// HeaderCount is how many fields a request's header may have; 0 for any number.
	HeaderCount int
	// BodyIdle bounds a pause in a request's body, WriteIdle one in the client's
	// taking of the response; 0 for never.
	BodyIdle, WriteIdle time.Duration
	// Overloaded tells that new work must be shed; may be nil.
	Overloaded func() bool
}

// Limits refuse requests that ask for too much, and end those whose client stalls.
type Limits struct {
	cfg     LimitsConfig
	reached *prometheus.CounterVec
	// awaited is net.Conn → *awaited.
	awaited sync.Map
}

// NewLimits registers the counter. It fails if that is registered already.
func NewLimits(cfg LimitsConfig, r prometheus.Registerer) (*Limits, error) {
	l := &Limits{cfg: cfg, reached: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshmesh_limits_reached_total",
		Help: "Connections and requests that were refused or ended because a limit was reached.",
	}, []string{"reason"})}
	if err := r.Register(l.reached); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return l, nil
}

// Count counts a limit that was reached.
func (l *Limits) Count(r upstream.Reason) { l.reached.WithLabelValues(string(r)).Inc() }

// Handler holds requests to the limits before and while next serves them.
func (l *Limits) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served(r.Context())
		if e := l.judge(r); e != nil {
			l.Count(e.Reason)
			w.Header().Set("Connection", "close")
			respond(w, r, e)
			return
		}
		control := http.NewResponseController(w)
		if l.cfg.BodyIdle > 0 && mustEnd(r) {
			b := &timedBody{ReadCloser: r.Body, stall: l.watch(upstream.BodyTimeout, l.cfg.BodyIdle, control.SetReadDeadline)}
			defer b.timer.Stop()
			r.Body = b
		}
		if l.cfg.WriteIdle > 0 {
			t := &timedWriter{ResponseWriter: w, stall: l.watch(upstream.SlowReader, l.cfg.WriteIdle, control.SetWriteDeadline)}
			defer t.timer.Stop()
			w = t
		}
		next.ServeHTTP(w, r)
	})
}

func (l *Limits) judge(r *http.Request) *upstream.Error {
	e := &upstream.Error{Unsent: true, Unanswered: true}
	if l.cfg.Overloaded != nil && l.cfg.Overloaded() {
		e.Reason, e.Err = upstream.Overload, errors.New("the proxy holds as much memory as it may")
		return e
	}
	count := 0
	for _, values := range r.Header {
		count += len(values)
	}
	if l.cfg.HeaderCount > 0 && count > l.cfg.HeaderCount {
		e.Reason, e.Err = upstream.HeaderLimit, fmt.Errorf("%d header fields, %d are allowed", count, l.cfg.HeaderCount)
		return e
	}
	return nil
}

// mustEnd tells whether a request's body is an upload. Others are streams, which
// may be silent for as long as both sides like: gRPC, and tunnels.
func mustEnd(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodConnect {
		return false
	}
	return r.ContentLength > 0 || r.ProtoMajor == 1
}

// stall ends one call that takes too long, by a deadline in the past. A deadline
// set ahead would end an HTTP/2 stream at its time, whether or not anything waits.
type stall struct {
	timer *time.Timer
	after time.Duration
	fired atomic.Bool
}

func (l *Limits) watch(reason upstream.Reason, after time.Duration, end func(time.Time) error) *stall {
	s := &stall{after: after}
	s.timer = time.AfterFunc(after, func() {
		s.fired.Store(true)
		l.Count(reason)
		_ = end(time.Unix(1, 0))
	})
	s.timer.Stop()
	return s
}

// timedBody bounds each read of the body.
type timedBody struct {
	io.ReadCloser
	*stall
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.after)
	n, err := b.ReadCloser.Read(p)
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
