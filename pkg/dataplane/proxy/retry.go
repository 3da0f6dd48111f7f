package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

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
// once, unless it has provably not worked on it.
type attempts struct {
	*exchange
	policy *discovery.Retry
	hash   uint64
	// tried are the endpoints that were chosen, sent those of them that may have worked on the request.
	tried, sent []mesh.EndpointKey
	// broke is the last failure on an endpoint in sent.
	broke *upstream.Error
	// label is for the metrics: why the next attempt is made; "" for the first.
	label string
	// dials and sends count what failed, repeats what the policy allowed.
	dials, sends, repeats int
	// dialling: the last attempt did not come to sending.
	dialling bool
	// release gives back what the retry budget gave; nil for nothing.
	release func()
	// leases is memory for two, since one ends only when the next one was had; had counts them.
	leases [2]endpoints.Lease
	had    int
	// lease is the one that was had last; nil for none.
	lease *endpoints.Lease
}

// send tries endpoints until one answers.
func (x *exchange) send(ctx context.Context) (answer, *endpoints.Lease, error) {
	a := &x.tries
	a.exchange, a.policy, a.hash = x, x.cluster.Config().RetryPolicy(), x.conn.hash
	defer a.giveBack()
	lease, err := a.acquire(ctx)
	for err == nil {
		began := x.clock()
		resp, failed := a.try(ctx, lease)
		x.note(lease.Key, resp, failed, began)
		if failed != nil {
			lease, err = a.afterFailure(ctx, lease, failed)
			continue
		}
		next := a.instead(ctx, resp)
		if next == nil {
			return resp, lease, nil
		}
		lease.Trailers(x.via.trailers())
		x.via.discard()
		lease.End(false)
		lease = next
	}
	return answer{}, nil, err
}

// acquire leases an endpoint that the request has not been to.
func (a *attempts) acquire(ctx context.Context) (*endpoints.Lease, error) {
	for {
		lease, err := a.cluster.Acquire(ctx, endpoints.Request{
			Hash: a.hash, Tried: a.tried, Sent: a.sent, Cancel: a.cancel, Lease: &a.leases[a.had%len(a.leases)],
		})
		switch {
		case err == nil:
			a.had++
			a.lease = lease
			a.tried = append(a.tried, lease.Key)
			if a.label != "" {
				a.Metrics.retried(a.exchange.label, a.label)
			}
			return lease, nil
		case errors.Is(err, endpoints.ErrAllTried) && len(a.tried) > len(a.sent):
			// All have been to; the last resort is to go round again.
			a.tried = slices.Clone(a.sent)
		case a.broke != nil && !upstream.Ended(ctx):
			// What happened to it says more than that there is nowhere else to go.
			return nil, a.broke
		default:
			return nil, err
		}
	}
}

// try makes one attempt. A failure has ended the lease.
func (a *attempts) try(ctx context.Context, lease *endpoints.Lease) (answer, *upstream.Error) {
	err := a.via.acquire(ctx, lease)
	a.dialling = err != nil
	if err != nil {
		e := upstream.AsError(err)
		lease.DialFailed(e.Reason)
		a.dials++
		return answer{}, e
	}
	a.sends++
	lease.Connected()
	resp, e := a.via.send(ctx, lease, a.policy.PerTryTimeout)
	if e == nil {
		lease.Response(resp.status, resp.header)
		if !a.trailersCount(resp) {
			return resp, nil
		}
		if err = a.via.peek(); err == nil {
			return resp, nil
		}
		a.via.discard()
		e = upstream.AsError(err)
	}
	e = ourDoing(ctx, lease, e)
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
	return answer{}, e
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

// trailersCount tells whether the policy may act on a status that is still to
// come. It is waited for only where the request is complete: then the server
// waits for nothing that the client would send after seeing the head.
func (a *attempts) trailersCount(resp answer) bool {
	return a.grpc && slices.ContainsFunc(a.policy.On, func(c string) bool { return slices.Contains(grpcWords, c) }) &&
		resp.header.Get("Grpc-Status") == "" && a.via.complete()
}

// afterFailure leases another endpoint, or gives the error that the client gets.
func (a *attempts) afterFailure(ctx context.Context, lease *endpoints.Lease, e *upstream.Error) (*endpoints.Lease, error) {
	if !a.via.replayable() || upstream.Ended(ctx) {
		return nil, e
	}
	a.label = string(e.Reason)
	switch {
	case a.dialling:
		if a.dials >= maxDials || !a.elsewhere(e.Reason) {
			return nil, e
		}
		return a.acquire(ctx)
	case e.Unsent || e.Reused && idempotent(a.method):
		// Nothing has worked on it, or most likely nothing and it would do no harm: not a matter of policy.
		if a.sends >= max(maxSends, 1+a.policy.Attempts) {
			return nil, e
		}
		if !e.Shed() {
			if e.Reused {
				// The endpoint is as good as any; only the connection was old.
				a.tried = slices.DeleteFunc(a.tried, func(k mesh.EndpointKey) bool { return k == lease.Key })
			}
			return a.acquire(ctx)
		}
	default:
		if a.repeats >= a.policy.Attempts || !a.allowed(e) {
			return nil, e
		}
		a.repeats++
		a.sent, a.broke = append(a.sent, lease.Key), e
	}
	if err := a.pace(ctx, e); err != nil {
		return nil, err
	}
	return a.acquire(ctx)
}

// elsewhere tells whether another endpoint may do better after a dial that
// failed so. Over HTTP/2 it may have a connection with room where no further one may be had.
func (a *attempts) elsewhere(r upstream.Reason) bool {
	if r == upstream.BreakerConnections {
		return a.cluster.Config().HTTP2
	}
	return r.Dial() || r == upstream.EndpointRemoved || r == upstream.ProtocolError || r == upstream.StreamLimit
}

// allowed tells whether the policy lets the request go again after a failure
// of an endpoint that may have worked on it.
func (a *attempts) allowed(e *upstream.Error) bool {
	if e.Reason != upstream.TryTimeout && e.Reason != upstream.ResetBeforeHeaders && e.Reason != upstream.ResetMidBody {
		return false
	}
	if a.grpc {
		return a.policy.Has(grpcConditions[e.Reason.GRPC()])
	}
	if !idempotent(a.method) || a.upgrade != "" {
		return false
	}
	if e.Reason == upstream.TryTimeout {
		return a.policy.Has("5xx") || a.policy.Has("gateway-error") || a.policy.Has("reset")
	}
	return e.Unanswered && (a.policy.Has("reset") || a.policy.Has("5xx"))
}

// instead leases another endpoint where the policy wants the answer not to be
// the last word; nil where it is, or nobody else is there to ask.
func (a *attempts) instead(ctx context.Context, resp answer) *endpoints.Lease {
	if a.repeats >= a.policy.Attempts || !a.via.replayable() {
		return nil
	}
	condition := a.condition(resp)
	if condition == "" || a.pace(ctx, nil) != nil {
		return nil
	}
	a.label = condition
	a.repeats++
	a.sent = slices.Clone(a.tried)
	// It must not wait: there is an answer. So its context has ended already.
	lease, err := a.acquire(ended) //nolint:contextcheck // on purpose
	if err != nil {
		return nil
	}
	return lease
}

// condition is that of the policy which the answer meets; "" for none.
func (a *attempts) condition(resp answer) string {
	var all []string
	switch {
	case a.grpc:
		// What the owner of the service says of statuses holds for every method.
		h := resp.header
		if t := a.via.trailers(); t.Get("Grpc-Status") != "" {
			h = t
		}
		code, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 32)
		if err != nil {
			return ""
		}
		all = []string{grpcConditions[codes.Code(code)]}
	case !idempotent(a.method) || a.upgrade != "":
		return ""
	default:
		all = httpConditions(resp)
	}
	for _, c := range all {
		if a.policy.Has(c) {
			return c
		}
	}
	return ""
}

// grpcConditions are Envoy's names for the statuses that may be retried on (x-envoy-retry-grpc-on).
var grpcConditions = map[codes.Code]string{
	codes.Canceled: "cancelled", codes.DeadlineExceeded: "deadline-exceeded", codes.Internal: "internal",
	codes.ResourceExhausted: "resource-exhausted", codes.Unavailable: "unavailable",
}

// httpConditions are Envoy's names that fit the answer (x-envoy-retry-on).
func httpConditions(resp answer) []string {
	var all []string
	if s := resp.status; s >= 502 && s <= 504 {
		all = append(all, "gateway-error")
	}
	if resp.status >= 500 {
		all = append(all, "5xx")
	}
	if resp.status == http.StatusConflict {
		all = append(all, "retriable-4xx")
	}
	if resp.header.Get("X-Envoy-Ratelimited") != "" {
		all = append(all, "envoy-ratelimited")
	}
	return all
}

// pace pauses and asks the budget. The error is what the client gets instead
// of another attempt after e, which may be nil.
func (a *attempts) pace(ctx context.Context, e *upstream.Error) error {
	longest := min(firstPause<<max(a.sends-1, 0), lastPause)
	if !pause(ctx, rand.N(longest)) {
		if e == nil {
			return context.Cause(ctx)
		}
		return &upstream.Error{Reason: upstream.ContextReason(ctx), NextHop: e.NextHop, Err: fmt.Errorf("before another attempt after %w", e)}
	}
	a.giveBack()
	release, ok := a.cluster.BeginRetry(discovery.DefaultPriority)
	if !ok {
		spent := &upstream.Error{Reason: upstream.BreakerRetries, Err: errors.New("the budget for retries is spent")}
		if e != nil {
			spent.NextHop, spent.Err = e.NextHop, fmt.Errorf("the budget for retries is spent, after %w", e)
		}
		return spent
	}
	a.release = release
	return nil
}

func (a *attempts) giveBack() {
	if a.release != nil {
		a.release()
		a.release = nil
	}
}

var grpcWords = func() []string {
	var all []string
	for _, w := range grpcConditions {
		all = append(all, w)
	}
	return all
}()
