package endpoints

import (
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Lease is the use of one endpoint for one request or connection. It ends with
// exactly one call of DialFailed, Complete or End. A Lease belongs to one goroutine.
type Lease struct {
	// Cluster and Key say what is leased. Upstream dials it; HTTP1 and HTTP2 have its connections in
	// these protocols: one of them is nil, by what the cluster speaks.
	Cluster  *Cluster
	Key      mesh.EndpointKey
	Upstream upstream.Upstream
	HTTP1    *relay.Pool
	HTTP2    *http2.Pool

	endpoint *endpoint
	began    time.Time
	sent     time.Time
	answered bool
	over     bool
	// well: the answer began well, and counts as good once it has ended without a break.
	well bool

	request Request
	// trial: the verdict on the endpoint waits for this request. seq is the
	// place in the register of those that may be closed; 0 for none.
	trial bool
	seq   uint64
}

// To is where a request over HTTP/2 goes.
func (l *Lease) To() http2.Opener {
	if l.request.Patient {
		return l.HTTP2.Patient()
	}
	return l.HTTP2
}

// Patient is that of the Request.
func (l *Lease) Patient() bool { return l.request.Patient }

// DialFailed ends the lease: no connection was had. The endpoint is ejected at
// once when reason is its own fault, and dialled in the background when the
// caller could not wait to find out. One that has no stream free is there.
func (l *Lease) DialFailed(reason upstream.Reason) {
	defer l.release()
	switch {
	case reason == upstream.ConnectTimeout && l.paused(l.began) > 0:
		l.Cluster.suspect(l.endpoint) // it was given no time
	case reason.Dial():
		l.note(localBad)
		l.Cluster.dialFailed(l.endpoint, l.began, reason)
	case reason != upstream.EndpointRemoved && reason != upstream.StreamLimit && time.Since(l.began) >= patience:
		l.Cluster.suspect(l.endpoint)
	}
}

// patience is how long a dial may take before its being given up says
// something of the endpoint: clients in more of a hurry than the connect
// timeout would otherwise never find out that an endpoint is dead.
const patience = 100 * time.Millisecond

// Connected says that a connection was had and the request goes out now.
func (l *Lease) Connected() {
	l.sent = time.Now()
	l.Cluster.count(l.endpoint, discovery.Load{Issued: 1})
	l.note(localGood)
	if l.endpoint.out.Load() {
		l.Cluster.dialed(l.endpoint, l.began)
	}
}

// Answered says that response headers have come, after Connected. ok is false
// for an answer that speaks of the endpoint's own trouble, or for none. Response says more.
func (l *Lease) Answered(ok bool) {
	e := answerGood
	if !ok {
		e = answerGateway
	}
	l.observe(ok)
	l.note(e)
}

// Response says that a response with this status and header has come, after
// Connected. 502, 503 and 504 count as slow, every 5xx against the endpoint;
// a gRPC status in the header counts as the HTTP status that fits it, one that
// is still to come is left to Trailers. An answer that begins well counts when
// it has ended well: at the end of the lease, unless BrokenOff was called. For a
// trial its beginning must do, as a stream may never end. Retry-After
// (RFC 9110 section 10.2.3) and grpc-retry-pushback-ms (gRFC A6) are honoured.
func (l *Lease) Response(status int, header Header) {
	code, isGRPC := grpcStatus(header)
	if isGRPC {
		status = httpStatus(code)
	}
	l.observe(status < 502 || status > 504)
	if d := retryAfter(status, header); d > 0 {
		l.endpoint.load.Avoid(time.Now(), d)
	}
	if !isGRPC && strings.HasPrefix(header.Get("Content-Type"), "application/grpc") {
		// The trailers tell. For a trial the headers must do: a stream may never end.
		l.verdict(answerGood)
		return
	}
	if e := answerOf(status); e != answerGood {
		l.note(e)
		return
	}
	l.verdict(answerGood)
	l.well = true
}

// BrokenOff says that the answer broke off after its headers, by the endpoint's
// doing, after Response: it counts as a reset, and the endpoint is dialled as by Broken.
func (l *Lease) BrokenOff() {
	l.well = false
	l.note(localBad)
	l.Cluster.suspect(l.endpoint)
}

// Trailers says what a gRPC response ended with, after Response; nothing of it
// matters but grpc-status and grpc-retry-pushback-ms.
func (l *Lease) Trailers(trailer Header) {
	code, ok := grpcStatus(trailer)
	if !ok {
		return
	}
	status := httpStatus(code)
	if d := retryAfter(status, trailer); d > 0 {
		l.endpoint.load.Avoid(time.Now(), d)
	}
	l.note(answerOf(status))
}

// Broken says that the connection broke before an answer, after Connected. The
// endpoint is dialled in the background: its process may have died, and the
// balancer need not choose it again for long.
func (l *Lease) Broken() {
	l.observe(false)
	l.note(localBad)
	l.Cluster.suspect(l.endpoint)
}

// TimedOut says that the answer did not come within the time of this attempt, after Connected.
func (l *Lease) TimedOut() {
	if l.paused(l.sent) > 0 {
		l.answered = true // it was given no time
		return
	}
	l.observe(false)
	l.note(localBad)
}

// Dialed is Answered for an opaque connection: the time that the dial took is
// all that is known of the endpoint's latency.
func (l *Lease) Dialed() {
	now := time.Now()
	l.answered = true
	l.endpoint.load.Observe(now, l.took(l.began, now), true)
	l.verdict(answerGood)
}

// End ends the lease; ok is false when the endpoint failed the request. One
// that was sent and never answered has shown that an answer takes at least so long.
func (l *Lease) End(ok bool) {
	if !l.answered && !l.sent.IsZero() {
		now := time.Now()
		l.endpoint.load.Outlast(now, l.took(l.sent, now))
	}
	if l.well {
		l.note(answerGood)
	}
	l.release()
	if ok {
		l.Cluster.count(l.endpoint, discovery.Load{Succeeded: 1})
		return
	}
	l.Cluster.count(l.endpoint, discovery.Load{Failed: 1})
}

// Complete ends a lease whose answer has come to its end, with these trailers.
func (l *Lease) Complete(trailers Header) {
	l.Trailers(trailers)
	l.End(true)
}

// Over tells whether the lease has ended.
func (l *Lease) Over() bool { return l.over }

// Abandon ends the lease unless it has ended, and says nothing of the endpoint: for who does not know how far it came.
func (l *Lease) Abandon() {
	if !l.over {
		l.release()
	}
}

// release gives back what Acquire took.
func (l *Lease) release() {
	l.over = true
	l.endpoint.load.End()
	if !l.request.Opaque {
		l.Cluster.gauges[l.request.Priority][Requests].leave()
	}
	if l.seq > 0 || l.trial {
		l.Cluster.ended(l)
	}
}

func (l *Lease) observe(ok bool) {
	now := time.Now()
	l.answered = true
	l.endpoint.load.Observe(now, l.took(l.sent, now), ok)
}

// took is the time between two that the endpoint had.
func (l *Lease) took(from, now time.Time) time.Duration {
	return now.Sub(from) - l.Cluster.set.cfg.Pulse.Paused(from, now)
}

// paused is for how long since then this process did not run.
func (l *Lease) paused(since time.Time) time.Duration {
	return l.Cluster.set.cfg.Pulse.Paused(since, time.Now())
}

// note tells the outlier detection of an event.
func (l *Lease) note(e event) {
	if e != localGood {
		l.verdict(e)
	}
	o := l.Cluster.Config().Outlier
	if o == nil {
		return
	}
	if found := l.endpoint.tally.note(o, e); found != "" {
		l.Cluster.doubt(l.endpoint, found)
	}
	l.Cluster.sweep(time.Now())
}

// verdict decides a trial.
func (l *Lease) verdict(e event) {
	if l.trial {
		l.trial = false
		l.Cluster.judged(l.endpoint, e == answerGood)
	}
}
