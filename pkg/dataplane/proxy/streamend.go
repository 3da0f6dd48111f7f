package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// timeOver is why the request's time is over; None while it is not.
func (s *stream) timeOver() upstream.Reason {
	if !s.deadline.IsZero() && !time.Now().Before(s.deadline) {
		return upstream.Deadline
	}
	return upstream.None
}

// Expired implements http2.Decider.
func (s *stream) Expired() (e *upstream.Error, attempt bool) {
	if s.bridged || s.away {
		// Who serves it, or waits, knows the time.
		return nil, false
	}
	if s.timeOver() != upstream.None {
		return s.late(), false
	}
	over := !s.tryBy.IsZero() && !time.Now().Before(s.tryBy)
	if over {
		s.tryBy = time.Time{}
		e = tryTimeout(s.tries.policy.PerTryTimeout)
		e.NextHop = s.lease.Key.Address
	}
	s.arm()
	return e, over
}

// late is the error of a request whose time is over, by what it waited for.
func (s *stream) late() *upstream.Error {
	e := &upstream.Error{}
	switch {
	case s.lease == nil:
	case s.asked:
		e.NextHop = s.lease.Key.Address
	case s.lease.Patient():
		return s.lease.HTTP2.Late(context.DeadlineExceeded)
	default:
		return &upstream.Error{Reason: upstream.Deadline, NextHop: s.lease.Key.Address, Err: upstream.ErrNoConnection}
	}
	return e.Late(s.ticket.Answered())
}

func tryTimeout(limit time.Duration) *upstream.Error {
	return &upstream.Error{Reason: upstream.TryTimeout, Err: fmt.Errorf("no answer within %s, the time for one attempt", limit)}
}

// Ended implements http2.Decider.
func (s *stream) Ended(o http2.Outcome) {
	switch {
	case s.bridged:
	case s.away:
		// Whoever waits puts it on the books, when what the connection has of it is another's.
		m := *s.request
		m.Fields = slices.Clone(m.Fields)
		s.request, s.how = &m, o
		s.stop()
	default:
		s.over(o)
		s.of.put(s)
	}
}

// over puts a request that has ended on the books.
func (s *stream) over(o http2.Outcome) {
	// Whatever comes of the rest.
	defer s.Tracker.end()
	defer s.tries.giveBack()
	if o.Err != nil && s.lease != nil {
		o.Err = ourDoing(upstream.None, s.lease, o.Err)
	}
	if e := s.endLease(o); e != nil {
		o.Err = e
	}
	s.received, s.sent = o.Received, o.Sent
	if o.Err != nil {
		s.failed(o.Err)
		if !o.Answered {
			s.status = o.Err.Reason.Status()
		}
	}
	s.finish(s)
}

// endLease ends the lease of the last attempt. Its error is a defect of ours, after which the lease has ended too.
func (s *stream) endLease(o http2.Outcome) (e *upstream.Error) {
	lease := s.lease
	if lease == nil {
		return nil
	}
	s.lease = nil
	defer func() {
		if e != nil {
			lease.Abandon()
		}
	}()
	defer s.guardError(&e)
	switch {
	case o.Err == nil && s.asked:
		lease.End(true)
		return nil
	case o.Err != nil && o.Err.Reason == upstream.Internal:
		// Nobody knows how far it came.
		lease.Abandon()
		return nil
	case o.Answered:
		ok := notTheirs(o.Err.Reason)
		if !ok {
			lease.BrokenOff()
		}
		lease.End(ok)
		return nil
	case o.Err == nil:
		o.Err = &upstream.Error{Reason: upstream.ClientGone}
	}
	s.note(lease.Key, answer{}, o.Err, s.since)
	if s.asked {
		s.tries.lost(lease, o.Err)
	} else {
		s.tries.undialled(lease, o.Err)
	}
	return nil
}

// wait has f called by a goroutine, which may wait until the request has ended; what f gives is then called
// with the lock held, and decides. A request that ends meanwhile is put on the books by that goroutine.
func (s *stream) wait(f func(ctx context.Context) func() http2.Decision) http2.Decision {
	ctx, stop := s.untilDeadline()
	s.away, s.stop = true, stop
	s.of.waits.Go(func() {
		defer stop()
		defer s.survive()
		decide := s.guarded(ctx, f)
		alive := s.ticket.Resume(func(wanted bool) (d http2.Decision) {
			defer s.guard(&d)
			s.away = false
			if !wanted {
				return http2.Decision{}
			}
			// Expired may have been called meanwhile, for the time of an attempt.
			s.arm()
			return decide()
		})
		if !alive {
			// The memory of the connection's requests is not ours now.
			s.memo = nil
			s.over(s.how)
		}
	})
	return http2.Decision{Later: true}
}

// survive is deferred by who waits, for what comes when the request has ended.
func (s *stream) survive() {
	if v := recover(); v != nil {
		_ = s.defect(s.conn.remote, v)
	}
}

// untilDeadline gives a context that ends with the connection, or with the request's time.
func (s *stream) untilDeadline() (context.Context, context.CancelFunc) {
	if s.deadline.IsZero() {
		return context.WithCancel(s.conn.ctx)
	}
	return context.WithDeadline(s.conn.ctx, s.deadline)
}

// guarded calls f, and makes a defect of ours the end of the request.
func (s *stream) guarded(ctx context.Context, f func(ctx context.Context) func() http2.Decision) (decide func() http2.Decision) {
	defer func() {
		if v := recover(); v != nil {
			e := s.defect(s.conn.remote, v)
			decide = func() http2.Decision { return http2.Decision{Error: e} }
		}
	}()
	return f(ctx)
}

// describe implements describer.
func (s *stream) describe(e *entry) {
	describeRequest(e, s.request)
	e.GRPCStatus = s.grpcStatus
}

// describeRequest says what is known of a request of HTTP/2.
func describeRequest(e *entry, m *message.Request) {
	e.Protocol, e.Method, e.Authority, e.Path = "HTTP/2.0", m.Method, m.Authority, pathOf(m.Path)
	e.TraceParent = m.Get("traceparent")
}
