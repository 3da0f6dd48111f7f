package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// stream is a request of an HTTP/2 client. To endpoints of HTTP/2 it goes frame by frame: then it is the
// http2.Decider that decides, called by the readers of connections, and has no goroutine but while something is
// to be waited for (away):
//
//	           a lease                  a place              head passed on
//	choosing ──────────▶ dialling ────────────────▶ asking ────────────────▶ answering ──▶ over
//	  ▲   ▲ └─▶ away ─┐     │ failed                  │ failed, or another answer wanted
//	  │   └───────────┘     │                         │
//	  └─────────────────────┴─────────────────────────┘
//
// Any other request, and any tunnel, is served by a goroutine (bridge); then only away and bridged matter here.
//
// All of it is guarded by the lock of the client's connection. While it is away, who waits has it instead, but
// for the last group of fields.
type stream struct {
	exchange
	of      *http2Conn
	ticket  http2.Ticket
	request *message.Request

	// lease is that of the present attempt, nil for none; asked: the request went out with it. since is when the attempt began.
	lease *endpoints.Lease
	asked bool
	since time.Time
	// deadline and tryBy are when the request and the attempt are over; zero for never.
	deadline, tryBy time.Time
	// trailers are those of the answer, grpcStatus is for the access log.
	trailers   message.Fields
	grpcStatus string

	// bridged: a goroutine serves it. away: somebody waits for it, and stop ends that; how is the end of a
	// request that ended meanwhile.
	bridged, away bool
	stop          context.CancelFunc
	how           http2.Outcome
}

// start decides where a new request goes.
func (s *stream) start() (d http2.Decision) {
	defer s.guard(&d)
	if err := s.begin(); err != nil {
		return refusing(err)
	}
	if cause, ok := errors.AsType[*upstream.Error](context.Cause(s.conn.ctx)); ok {
		return refusing(cause)
	}
	if s.grpc && s.timeout > 0 {
		s.bound(s.began.Add(s.timeout))
	}
	name, err := s.target()
	if err != nil {
		return refusing(err)
	}
	cluster, wait, err := s.known(name)
	if wait {
		return s.wait(func(ctx context.Context) func() http2.Decision {
			cluster, err := s.resolve(ctx, name)
			return func() http2.Decision { return s.resolved(cluster, err) } //nolint:contextcheck // what follows has its own
		})
	}
	return s.resolved(cluster, err)
}

func refusing(err error) http2.Decision { return http2.Decision{Error: upstream.AsError(err)} }

// guard makes a defect of ours the end of the request.
func (s *stream) guard(d *http2.Decision) {
	if v := recover(); v != nil {
		*d = http2.Decision{Error: s.defect(s.conn.remote, v)}
	}
}

// guardError is guard for what gives an error.
func (s *stream) guardError(e **upstream.Error) {
	if v := recover(); v != nil {
		*e = s.defect(s.conn.remote, v)
	}
}

// bound sets the deadline, unless an earlier one is set.
func (s *stream) bound(at time.Time) {
	if s.deadline.IsZero() || at.Before(s.deadline) {
		s.deadline = at
		s.arm()
	}
}

// arm has Expired called in time.
func (s *stream) arm() {
	next := s.deadline
	if !s.tryBy.IsZero() && (next.IsZero() || s.tryBy.Before(next)) {
		next = s.tryBy
	}
	s.ticket.SetDeadline(next)
}

// resolved goes on when the cluster is known, or cannot be.
func (s *stream) resolved(cluster *endpoints.Cluster, err error) http2.Decision {
	if err != nil {
		return refusing(err)
	}
	s.found(cluster)
	c := cluster.Config()
	if !c.HTTP2 || s.tunnel {
		return s.bridge()
	}
	if c.Timeout > 0 {
		s.bound(s.began.Add(c.Timeout))
	}
	if cluster.ClosesEstablished() {
		ticket := s.ticket
		s.cancel = func(err error) { ticket.Fail(upstream.AsError(err)) }
	}
	s.tries.begin(&s.exchange)
	return s.next()
}

// next goes to an endpoint that the request has not been to, at once where that can be.
func (s *stream) next() http2.Decision {
	lease, err := s.tries.acquire(s.conn.ctx, true)
	if errors.Is(err, endpoints.ErrMustWait) {
		return s.wait(s.find)
	}
	if err != nil {
		return refusing(err)
	}
	return s.dial(lease)
}

// find waits for an endpoint, for wait.
func (s *stream) find(ctx context.Context) func() http2.Decision {
	lease, err := s.tries.acquire(ctx, false)
	if err != nil {
		return func() http2.Decision { return refusing(err) }
	}
	s.lease, s.asked = lease, false
	return func() http2.Decision { return s.dial(lease) } //nolint:contextcheck // what follows has its own
}

// dial has the request sent to the endpoint of a lease: Sent follows, or Failed.
func (s *stream) dial(lease *endpoints.Lease) http2.Decision {
	s.lease, s.asked, s.since = lease, false, s.clock()
	if lease.HTTP2 == nil {
		return s.Failed(changedProtocol(lease), s.ticket.Replayable())
	}
	return http2.Decision{To: lease.To()}
}

// changedProtocol is the error of an endpoint whose cluster has just come to speak another version of HTTP; it has been replaced.
func changedProtocol(lease *endpoints.Lease) *upstream.Error {
	return upstream.Removed(lease.Key.Address)
}

// Sent implements http2.Decider.
func (s *stream) Sent() (e *upstream.Error) {
	if s.bridged {
		return nil
	}
	defer s.guardError(&e)
	s.asked = true
	s.tries.connected(s.lease)
	if d := s.tries.policy.PerTryTimeout; d > 0 {
		s.tryBy = time.Now().Add(d)
		s.arm()
	}
	return nil
}

// Response implements http2.Decider.
func (s *stream) Response(r *message.Response, end bool) (d http2.Decision) {
	if s.bridged {
		return http2.Decision{}
	}
	defer s.guard(&d)
	s.tryBy = time.Time{}
	if s.upgrade != "" && r.Status < 300 {
		// What follows is a tunnel, which has no time.
		s.deadline = time.Time{}
		s.arm()
	}
	s.lease.Response(r.Status, r)
	s.status = r.Status
	if s.AccessLog != nil {
		s.firstByte = time.Since(s.began)
		s.grpcStatus = r.Get("grpc-status")
		s.note(s.lease.Key, answer{status: r.Status}, nil, s.since)
	}
	a := answer{r.Status, r}
	if !end && s.tries.trailersCount(a, s.ticket.Complete()) {
		return http2.Decision{Hold: true}
	}
	return s.instead(a, nil)
}

// Trailers implements http2.Decider.
func (s *stream) Trailers(fields []message.Field) (d http2.Decision) {
	if s.bridged {
		return http2.Decision{}
	}
	s.trailers = fields
	defer s.guard(&d)
	s.lease.Trailers(&s.trailers)
	if s.AccessLog != nil {
		s.grpcStatus = s.trailers.Get("grpc-status")
	}
	if s.ticket.Answered() {
		return http2.Decision{}
	}
	return s.instead(answer{s.status, &s.trailers}, &s.trailers)
}

// instead goes to another endpoint where the policy wants the answer not to be the last word.
func (s *stream) instead(a answer, trailers endpoints.Header) http2.Decision {
	if !s.ticket.Replayable() {
		return http2.Decision{}
	}
	next := s.tries.instead(s.conn.ctx, a, trailers)
	if next == nil {
		return http2.Decision{}
	}
	s.lease.End(false)
	s.lease, s.asked = next, false
	return s.wait(func(ctx context.Context) func() http2.Decision {
		on := pause(ctx, s.tries.backoff())
		return func() http2.Decision {
			if !on {
				return refusing(&upstream.Error{Reason: upstream.EndOf(ctx), Err: errors.New("before another attempt")})
			}
			return s.dial(next) //nolint:contextcheck // what follows has its own
		}
	})
}

// Failed implements http2.Decider.
func (s *stream) Failed(e *upstream.Error, again bool) (d http2.Decision) {
	if s.bridged {
		return http2.Decision{}
	}
	defer s.guard(&d)
	lease := s.lease
	e = ourDoing(s.timeOver(), lease, e)
	if s.ticket.Answered() {
		return http2.Decision{Error: e}
	}
	s.lease, s.tryBy = nil, time.Time{}
	s.note(lease.Key, answer{}, e, s.since)
	if s.asked {
		s.tries.lost(lease, e)
	} else {
		s.tries.undialled(lease, e)
	}
	switch s.tries.judge(lease.Key, e, again && s.timeOver() == upstream.None) {
	case giveUp:
		return http2.Decision{Error: e}
	case paced:
		return s.wait(func(ctx context.Context) func() http2.Decision {
			if err := s.tries.pace(ctx, e); err != nil {
				return func() http2.Decision { return refusing(err) }
			}
			return s.find(ctx)
		})
	case atOnce:
	}
	return s.next()
}
