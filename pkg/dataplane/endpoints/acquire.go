package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// ErrAllTried says that there are usable endpoints, but none that this request
// has not been to.
var ErrAllTried = errors.New("every usable endpoint has been tried")

// ErrMustWait says that a request would have to wait for a usable endpoint.
var ErrMustWait = errors.New("no endpoint is usable now")

// Request is what an endpoint is leased for.
type Request struct {
	// Hash is for ring hash and Maglev: the client's address.
	Hash uint64
	// Tried are the endpoints not to give again, unless all were ejected and one has come back.
	Tried []mesh.EndpointKey
	// Sent are those of Tried that may have worked on the request: they are not given again at all.
	Sent []mesh.EndpointKey
	// Priority chooses the limits.
	Priority discovery.Priority
	// Opaque is a connection and no request: the breaker on requests leaves it alone.
	Opaque bool
	// Lease is memory for the lease, which the caller may use again once that has ended; nil for memory of
	// its own. A request with Cancel gets its own in any case.
	Lease *Lease
	// Patient has a request whose endpoint has no stream free, and may have no further connection, wait for one
	// (Lease.To, http2.Pool.Patient). What waits is bounded by the breaker on pending requests.
	Patient bool
	// Now gives ErrMustWait where Acquire would wait, or give a reason for not doing so; it does nothing else then.
	Now bool
	// Cancel ends the request, with an *upstream.Error as cause, when its
	// endpoint is ejected or a limit lowered and the cluster says that this closes
	// what is established. It may be called from any goroutine; nil for never.
	Cancel context.CancelCauseFunc
}

// Acquire leases an endpoint. With none usable it waits as the package comment
// says. Its error is ErrAllTried, ErrMustWait where Request.Now wants it, or an *upstream.Error: BreakerRequests, and
// of those that found no endpoint NoEndpoints or AllEjected after the wait,
// FailFast without one, NoSuchService when the cluster was removed, BreakerPending, and DeadlineInQueue or ClientGone when ctx ended.
func (c *Cluster) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if r.Priority >= discovery.Priorities {
		r.Priority = discovery.DefaultPriority
	}
	c.sawTraffic()
	if !r.Opaque {
		if err := c.enter(r.Priority, Requests); err != nil {
			return nil, err
		}
	}
	l, err := c.choose(time.Now(), &r)
	if err == nil && l == nil {
		l, err = c.find(ctx, &r)
	}
	if err != nil {
		if !r.Opaque {
			c.gauges[r.Priority][Requests].leave()
		}
		return nil, err
	}
	if r.Cancel != nil {
		c.register(l)
	}
	return l, nil
}

// choose leases an endpoint that can be used now; nil where there is none.
func (c *Cluster) choose(now time.Time, r *Request) (*Lease, error) {
	if e := c.claim(now, r.Tried); e != nil {
		return lease(c, e, now, r, true), nil
	}
	roster := c.roster.Load()
	if entry := roster.picker.Pick(balance.Request{Now: now, Hash: r.Hash, Tried: r.Tried}); entry != nil {
		if now.UnixNano() >= c.nextTrial.Load() {
			c.beginTrials(now, maxTrials)
		}
		return lease(c, entry.Owner.(*endpoint), now, r, false), nil
	}
	if roster.picker.Usable() > 0 {
		return nil, ErrAllTried
	}
	return nil, nil
}

// find waits until there is one to choose.
func (c *Cluster) find(ctx context.Context, r *Request) (l *Lease, err error) {
	if r.Now {
		return nil, ErrMustWait
	}
	w := &wait{Cluster: c, request: *r}
	defer w.leave()
	for l == nil && err == nil {
		if err = w.await(ctx, time.Now()); err == nil {
			// What was tried before everything was ejected may be tried again.
			r.Tried = r.Sent
			l, err = c.choose(time.Now(), r)
		}
	}
	return l, err
}

func lease(c *Cluster, e *endpoint, now time.Time, r *Request, trial bool) *Lease {
	e.load.Begin()
	l := r.Lease
	if l == nil || r.Cancel != nil {
		// Who cancels may still hold one that has ended.
		l = new(Lease)
	}
	*l = Lease{Cluster: c, Key: e.key, Upstream: e.upstream, HTTP1: e.upstream.http1, HTTP2: e.upstream.http2, endpoint: e, began: now, request: *r, trial: trial}
	return l
}

// wait is one request that finds no usable endpoint.
type wait struct {
	*Cluster
	request Request
	// queued: it has a place in the queue.
	queued bool
}

func (w *wait) leave() {
	if w.queued {
		w.gauges[w.request.Priority][Pending].leave()
	}
}

// await waits until it is worth looking again, or gives why not.
func (w *wait) await(ctx context.Context, now time.Time) error {
	c := w.Cluster
	if c.removed.Load() {
		return &upstream.Error{Reason: upstream.NoSuchService, Unsent: true, Unanswered: true, Err: fmt.Errorf("cluster %s was removed under the request", c.name)}
	}
	c.mu.Lock()
	phase := c.availability.phase(now, c.set.cfg.FailFast)
	probing := c.availability.wanted(now) && c.probing
	c.availability.interest = now
	c.keepProbing()
	changed, until := c.changed, c.availability.without.Add(c.set.cfg.FailFast)
	c.mu.Unlock()
	switch phase {
	case Serving:
		return nil
	case Waiting:
		if !w.queued {
			if err := c.enter(w.request.Priority, Pending); err != nil {
				return err
			}
			w.queued = true
		}
		return w.sleep(ctx, changed, until.Sub(now))
	case FailingFast:
	}
	if probing || w.queued {
		return w.verdict(now)
	}
	// Nobody asked for a while, so nothing was tried: the one that asks first
	// is worth a trial, and it gets its result.
	done := c.beginTrials(now, 1)
	if done == nil {
		return w.verdict(now)
	}
	if err := w.sleep(ctx, done, c.set.cfg.FailFast); err != nil {
		return err
	}
	return w.verdict(time.Now())
}

// sleep waits for woken, for so long, or until ctx ends, which is an error.
func (w *wait) sleep(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-ctx.Done():
	}
	// On a busy machine several of them have happened by now. What came of the request is then that its time was over.
	reason, cause := upstream.EndOf(ctx), context.Cause(ctx)
	if reason == upstream.None {
		return nil
	}
	if reason == upstream.Deadline {
		reason, cause = upstream.DeadlineInQueue, context.DeadlineExceeded
	}
	return &upstream.Error{Reason: reason, Unsent: true, Unanswered: true, Err: fmt.Errorf("%w while waiting for a usable endpoint", cause)}
}

// verdict is nil when an endpoint is usable after all.
func (w *wait) verdict(now time.Time) error {
	c := w.Cluster
	c.mu.Lock()
	if !c.availability.none() {
		c.mu.Unlock()
		return nil
	}
	ask := c.availability.distrust(now)
	e := &upstream.Error{Reason: upstream.NoEndpoints, Unsent: true, Unanswered: true}
	out, hop, text := c.why()
	e.NextHop, e.Err = hop, errors.New(text)
	c.mu.Unlock()
	if ask {
		c.set.cfg.Reporter.Distrust(c.name)
	}
	if out {
		// One that waited tells what it waited for; one that did not, that it did not.
		e.Reason = upstream.AllEjected
		if !w.queued {
			e.Reason = upstream.FailFast
		}
	}
	return e
}

// sum says how many of the endpoints are ejected and fail their health check, since when none is usable. It needs mu.
func (c *Cluster) sum(ejected, failed int) string {
	all, since := len(c.order), c.availability.without.UTC().Format("15:04:05.000Z")
	one := all == 1
	switch {
	case ejected+failed == 0 && one:
		return fmt.Sprintf("the only endpoint of %s is not healthy since %s", c.name, since)
	case ejected+failed == 0:
		return fmt.Sprintf("none of %d endpoints of %s is healthy since %s", all, c.name, since)
	case one && failed == 1:
		return fmt.Sprintf("the only endpoint of %s fails its health check, none usable since %s", c.name, since)
	case one:
		return fmt.Sprintf("the only endpoint of %s ejected since %s", c.name, since)
	case ejected == all:
		return fmt.Sprintf("all %d endpoints of %s ejected since %s", all, c.name, since)
	}
	return fmt.Sprintf("of %d endpoints of %s: %d ejected, %d failing the health check, none usable since %s", all, c.name, ejected, failed, since)
}

// why says what is wrong with the endpoints, and which of those that are out
// failed last; out is false when discovery lists none that could be used. It needs mu.
func (c *Cluster) why() (out bool, hop netip.AddrPort, text string) {
	var last *endpoint
	ejected, failed := 0, 0
	for _, e := range c.order {
		switch {
		case !eligible(e.listed):
		case e.ejection.ejected():
			ejected++
			if last == nil || e.ejection.at.After(last.ejection.at) {
				last = e
			}
		case e.checks.failed():
			failed++
		}
	}
	text = c.sum(ejected, failed)
	if ejected+failed == 0 {
		return false, hop, text
	}
	if last == nil {
		return true, hop, text
	}
	return true, last.key.Address, fmt.Sprintf("%s, last: %s %s", text, last.ejection.reason, last.key.Address)
}
