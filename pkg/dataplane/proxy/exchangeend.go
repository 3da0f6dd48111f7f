package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// ourDoing gives the error for what the endpoint seems to have done, where that was the end of the request, for
// that reason (None where it has not ended), or the end of the endpoint's time.
func ourDoing(end upstream.Reason, lease *endpoints.Lease, e *upstream.Error) *upstream.Error {
	switch {
	case notTheirs(e.Reason) || e.Reason == upstream.TryTimeout:
	case end != upstream.None:
		if end == upstream.Deadline {
			return e.Late(!e.Unanswered)
		}
		next := *e
		next.Reason = end
		return &next
	case lease.Overdue():
		return overdue(lease)
	}
	return e
}

// fail answers with an error of ours.
func (x *exchange) fail(err error) {
	e := upstream.AsError(err)
	x.failed(e)
	x.status = e.Reason.Status()
	x.via.refuse(e.Answer(x.grpc), x.last || x.pinned(e) || x.conn.told())
}

// pinned tells whether a client that named an address, and no service, was
// told that there is nothing at it: it should ask anew where to go.
func (x *exchange) pinned(e *upstream.Error) bool {
	gone := e.Reason == upstream.NoSuchService || e.Reason == upstream.NoEndpoints || e.Reason == upstream.EndpointRemoved
	_, err := netip.ParseAddrPort(x.name)
	return gone && err == nil
}

// failed notes e for metrics and logs.
func (x *exchange) failed(e *upstream.Error) {
	x.reason, x.err = e.Reason, e
	if x.Logger.IsDebug() {
		x.Logger.Debug("request failed", "cluster", x.label, "layer", e.Reason.Layer(), "reason", e.Reason, "endpoint", e.NextHop, "err", e.Err)
	}
}

// end finishes the request, after a defect of ours too.
func (x *exchange) end() {
	v := recover()
	if err, _ := v.(error); v != nil && !errors.Is(err, http.ErrAbortHandler) {
		x.failed(x.defect(x.conn.remote, v))
		x.status = upstream.Internal.Status()
		if x.tries.lease != nil {
			x.tries.lease.Abandon()
		}
		v = http.ErrAbortHandler
	}
	// Whatever comes of the rest.
	defer x.Tracker.end()
	x.via.close()
	x.finish(x.via)
	if v != nil {
		// Whoever serves the connection ends it, or the stream.
		panic(v)
	}
}

// defect tells of a panic, and gives its error.
func (c *Config) defect(client string, v any) *upstream.Error {
	c.panicked(client, v, debug.Stack())
	return &upstream.Error{Reason: upstream.Internal, Err: fmt.Errorf("%v", v)}
}

// describer says what only it knows of a request.
type describer interface{ describe(e *entry) }

// finish puts the request on the books.
func (x *exchange) finish(d describer) {
	reason := x.reason
	if reason == "" {
		reason = upstream.None
	}
	x.Limits.ended(reason)
	took := time.Since(x.began)
	if x.memo != nil {
		x.Metrics.endedAs(&x.memo.series, x.label, max(x.status, 100), reason, took)
	} else {
		x.Metrics.ended(x.label, max(x.status, 100), reason, took)
	}
	if x.AccessLog != nil {
		x.AccessLog.add(x.entry(d, reason, took))
	}
}
