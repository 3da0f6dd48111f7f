package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// maxDials bounds how many endpoints a request may find dead. A failed
	// dial costs nothing and ejects, so it may be more than maxSends.
	maxDials = 10
	// maxSends bounds how often a request may be written, unless the policy allows more.
	maxSends = 3
	// The pause before a request is sent again is anything up to firstPause,
	// which doubles up to lastPause: the bounds of Envoy's default back-off.
	firstPause, lastPause = 25 * time.Millisecond, 250 * time.Millisecond
)

// attempts is the way of one request over endpoints, each of which gets it
// once, unless it has provably not worked on it. It decides for all carriers, and for stream:
//
//	acquire ──▶ dial ──▶ connected ──▶ answer ──▶ its status is the policy's ── instead ──▶ another endpoint
//	   ▲          │ undialled  │ lost      └──────▶ the client's
//	   │          ▼            ▼
//	   └───── judge: atOnce, or paced within the budget; giveUp ──▶ the error is the client's
//
// A request that has been to all endpoints without being worked on goes round again (around). Where one of them was
// full it is patient in that round: it waits at the next one that is.
type attempts struct {
	*exchange
	policy *discovery.Retry
	hash   uint64
	// tried are the endpoints that were chosen, sent those of them that may have worked on the request.
	tried, sent []mesh.EndpointKey
	// broke is the last failure on an endpoint in sent, last the last one of all.
	broke, last *upstream.Error
	// label is for the metrics: why the next attempt is made; "" for the first.
	label string
	// dials and sends count what failed, repeats what the policy allowed.
	dials, sends, repeats int
	// dialling: the last attempt did not come to sending.
	dialling bool
	// full: an endpoint had no stream free. patient: the request has been to all of them,
	// and waits at the next one that has none.
	full, patient bool
	// release gives back what the retry budget gave (giveBack); nil for nothing.
	release func()
	// first is memory for the first one: most requests have no other.
	first endpoints.Lease
	// lease is the one that was had last; nil for none.
	lease *endpoints.Lease
}

// send tries endpoints until one answers.
func (x *exchange) send(ctx context.Context) (answer, *endpoints.Lease, error) {
	a := &x.tries
	a.begin(x)
	defer a.giveBack()
	lease, err := a.acquire(ctx, false)
	for err == nil {
		began := x.clock()
		resp, failed := a.try(ctx, lease)
		x.note(lease.Key, resp, failed, began)
		if failed != nil {
			lease, err = a.afterFailure(ctx, lease, failed)
			continue
		}
		next := (*endpoints.Lease)(nil)
		if x.via.replayable() {
			next = a.instead(ctx, resp, x.via.trailers())
		}
		if next == nil {
			return resp, lease, nil
		}
		lease.Trailers(x.via.trailers())
		x.via.discard()
		lease.End(false)
		if lease = next; !pause(ctx, a.backoff()) {
			e := &upstream.Error{Reason: upstream.EndOf(ctx), Err: errors.New("before another attempt")}
			lease.DialFailed(e.Reason)
			err = e
		}
	}
	return answer{}, nil, err
}

// begin takes the request, whose cluster is known.
func (a *attempts) begin(x *exchange) {
	a.exchange, a.policy, a.hash = x, x.cluster.Config().RetryPolicy(), x.conn.hash
}

// acquire leases an endpoint that the request has not been to. now: it gives endpoints.ErrMustWait where it would wait.
func (a *attempts) acquire(ctx context.Context, now bool) (*endpoints.Lease, error) {
	for {
		q := endpoints.Request{Hash: a.hash, Tried: a.tried, Sent: a.sent, Cancel: a.cancel, Now: now, Patient: a.patient}
		if a.lease == nil {
			q.Lease = &a.first
		}
		lease, err := a.cluster.Acquire(ctx, q)
		switch {
		case err == nil:
			a.lease = lease
			a.tried = append(a.tried, lease.Key)
			if a.label != "" {
				a.Metrics.retried(a.exchange.label, a.label)
			}
			return lease, nil
		case errors.Is(err, endpoints.ErrAllTried) && len(a.tried) > len(a.sent):
			// All have been to; the last resort is to go round again.
			a.around()
		case errors.Is(err, endpoints.ErrAllTried):
			return nil, a.exhausted(ctx)
		case errors.Is(err, endpoints.ErrMustWait):
			return nil, err
		case a.broke != nil && upstream.EndOf(ctx) == upstream.None:
			// What happened to it says more than that there is nowhere else to go.
			return nil, a.broke
		default:
			return nil, err
		}
	}
}

// exhausted is the error of a request that has been to all endpoints that it may go to.
func (a *attempts) exhausted(ctx context.Context) error {
	if end := upstream.EndOf(ctx); end != upstream.None {
		return &upstream.Error{Reason: end, Err: endpoints.ErrAllTried}
	}
	if a.broke != nil {
		return a.broke
	}
	return a.last
}

// try makes one attempt. A failure has ended the lease.
func (a *attempts) try(ctx context.Context, lease *endpoints.Lease) (answer, *upstream.Error) {
	err := a.via.acquire(ctx, lease)
	if err != nil {
		e := upstream.AsError(err)
		a.undialled(lease, e)
		return answer{}, e
	}
	a.connected(lease)
	resp, e := a.via.send(ctx, lease, a.policy.PerTryTimeout)
	if e == nil {
		lease.Response(resp.status, resp.header)
		if !a.trailersCount(resp, a.via.complete()) {
			return resp, nil
		}
		if err = a.via.peek(); err == nil {
			return resp, nil
		}
		a.via.discard()
		e = upstream.AsError(err)
	}
	e = ourDoing(upstream.EndOf(ctx), lease, e)
	a.lost(lease, e)
	return answer{}, e
}

// connected notes that the request goes out to an endpoint.
func (a *attempts) connected(lease *endpoints.Lease) {
	a.dialling = false
	a.sends++
	lease.Connected()
}

// undialled ends an attempt that had no connection.
func (a *attempts) undialled(lease *endpoints.Lease, e *upstream.Error) {
	a.dialling = true
	a.dials++
	lease.DialFailed(e.Reason)
}

// lost ends an attempt that had no answer to pass on.
func (a *attempts) lost(lease *endpoints.Lease, e *upstream.Error) {
	gone := notTheirs(e.Reason)
	switch {
	case gone:
	case e.Reason == upstream.TryTimeout:
		lease.TimedOut()
	case e.Reason == upstream.ResetBeforeHeaders:
		lease.Broken()
	default:
		lease.Answered(false)
	}
	lease.End(gone)
}

// notTheirs tells whether an attempt ended for a reason that is no fault of the endpoint's.
func notTheirs(r upstream.Reason) bool {
	switch r { //nolint:exhaustive // all others are
	case upstream.Deadline, upstream.ClientGone, upstream.EndpointEjected, upstream.EndpointRemoved, upstream.BreakerRequests,
		upstream.Draining, upstream.ConnectionAge, upstream.BadBody, upstream.BodyTooLarge, upstream.BodyTimeout, upstream.SlowReader, upstream.Internal:
		return true
	}
	return false
}

// afterFailure leases another endpoint, or gives the error that the client gets.
func (a *attempts) afterFailure(ctx context.Context, lease *endpoints.Lease, e *upstream.Error) (*endpoints.Lease, error) {
	switch a.judge(lease.Key, e, a.via.replayable() && upstream.EndOf(ctx) == upstream.None) {
	case giveUp:
		return nil, e
	case paced:
		if err := a.pace(ctx, e); err != nil {
			return nil, err
		}
	case atOnce:
	}
	return a.acquire(ctx, false)
}
