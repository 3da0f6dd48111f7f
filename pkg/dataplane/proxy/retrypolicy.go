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
)

// trailersCount tells whether the policy may act on a status that is still to
// come. It is waited for only where the request is complete: then the server
// waits for nothing that the client would send after seeing the head.
func (a *attempts) trailersCount(resp answer, complete bool) bool {
	return a.grpc && slices.ContainsFunc(a.policy.On, func(c string) bool { return slices.Contains(grpcWords, c) }) &&
		resp.header.Get("Grpc-Status") == "" && complete
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
// the last word; nil where it is, or nobody else is there to ask. It does not wait. A pause comes next.
func (a *attempts) instead(ctx context.Context, resp answer, trailers endpoints.Header) *endpoints.Lease {
	if a.repeats >= a.policy.Attempts {
		return nil
	}
	condition := a.condition(resp, trailers)
	if condition == "" || a.spend(nil) != nil {
		return nil
	}
	a.label = condition
	a.repeats++
	a.sent = append(a.sent[:0], a.tried...)
	lease, err := a.acquire(ctx, true)
	if err != nil {
		return nil
	}
	return lease
}

// condition is that of the policy which the answer meets; "" for none.
func (a *attempts) condition(resp answer, trailers endpoints.Header) string {
	var all []string
	switch {
	case a.grpc:
		// What the owner of the service says of statuses holds for every method.
		h := resp.header
		if trailers != nil && trailers.Get("Grpc-Status") != "" {
			h = trailers
		}
		status := h.Get("Grpc-Status")
		if status == "" {
			// The most common case, for which an error would be made.
			return ""
		}
		code, err := strconv.ParseUint(status, 10, 32)
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

// grpcWords are the names in grpcConditions.
var grpcWords = func() []string {
	var all []string
	for _, w := range grpcConditions {
		all = append(all, w)
	}
	return all
}()

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

// pace pauses and asks the budget. The error is what the client gets instead of another attempt after e.
func (a *attempts) pace(ctx context.Context, e *upstream.Error) error {
	if !pause(ctx, a.backoff()) {
		return &upstream.Error{Reason: upstream.EndOf(ctx), NextHop: e.NextHop, Err: fmt.Errorf("before another attempt after %w", e)}
	}
	return a.spend(e)
}

// backoff is how long to wait before the request is sent again.
func (a *attempts) backoff() time.Duration {
	return rand.N(min(firstPause<<max(a.sends-1, 0), lastPause))
}

// spend asks the budget for another attempt after e, which may be nil. The error is what the client gets instead.
func (a *attempts) spend(e *upstream.Error) error {
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

// giveBack gives back the place of a retry in the budget, once.
func (a *attempts) giveBack() {
	if a.release != nil {
		a.release()
		a.release = nil
	}
}
