package endpoints

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// ErrAllTried says that there are usable endpoints, but none that this request
// has not been to.
var ErrAllTried = errors.New("every usable endpoint has been tried")

// Request is what an endpoint is leased for.
type Request struct {
	// Hash is for ring hash: the client's address.
	Hash uint64
	// Tried are the endpoints not to give again, unless all were ejected and one has come back.
	Tried []mesh.EndpointKey
	// Sent are those of Tried that may have worked on the request: they are not given again at all.
	Sent []mesh.EndpointKey
}

// Acquire leases an endpoint. With none usable it waits as the package comment
// says. Its error is ErrAllTried, or an *upstream.Error with NoEndpoints or
// AllEjected, or with Deadline or ClientGone when ctx ended.
func (c *Cluster) Acquire(ctx context.Context, r Request) (*Lease, error) {
	for {
		now := time.Now()
		roster := c.roster.Load()
		if key, ok := roster.picker.Pick(balance.Request{Now: now, Hash: r.Hash, Tried: r.Tried}); ok {
			if roster.ejected > 0 {
				c.beginTrials(now, len(roster.by))
			}
			e := roster.by[key]
			e.load.Begin()
			return &Lease{Cluster: c, Key: key, Upstream: e.upstream, endpoint: e, began: now}, nil
		}
		if roster.picker.Usable() > 0 {
			return nil, ErrAllTried
		}
		if err := c.await(ctx, now); err != nil {
			return nil, err
		}
		// What was tried before everything was ejected may be tried again.
		r.Tried = r.Sent
	}
}

// await waits until it is worth looking again, or gives why not.
func (c *Cluster) await(ctx context.Context, now time.Time) error {
	if done := c.beginTrials(now, 1); done != nil {
		select {
		case <-done:
			return c.verdict(time.Now())
		case <-ctx.Done():
			return ctxError(ctx)
		}
	}
	if err := c.verdict(now); err != nil {
		return err
	}
	changed, again := c.waitFor(now)
	timer := time.NewTimer(again)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctxError(ctx)
	}
	return nil
}

// verdict is nil while it is worth waiting: an endpoint is usable, or the
// fail-fast time is not over.
func (c *Cluster) verdict(now time.Time) error {
	c.mu.Lock()
	without := c.without
	roster := c.roster.Load()
	over := !without.IsZero() && now.Sub(without) >= c.set.cfg.FailFast
	ask := over && now.Sub(c.distrusted) >= time.Second
	if ask {
		c.distrusted = now
	}
	c.mu.Unlock()
	if !over {
		return nil
	}
	if ask {
		c.set.cfg.Reporter.Distrust(c.name)
	}
	reason := upstream.NoEndpoints
	e := &upstream.Error{Unsent: true, Unanswered: true}
	if roster.ejected > 0 {
		reason = upstream.AllEjected
		e.NextHop, e.Err = c.lastFailure()
	}
	e.Reason = reason
	return e
}

// lastFailure names the ejected endpoint that failed last, so that the error says what is wrong.
func (c *Cluster) lastFailure() (hop netip.AddrPort, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last *endpoint
	for _, e := range c.endpoints {
		if e.ejection.ejected() && (last == nil || e.ejection.at.After(last.ejection.at)) {
			last = e
		}
	}
	if last == nil {
		return hop, nil
	}
	return last.key.Address, errors.New("last failure " + string(last.ejection.reason))
}

// waitFor gives what to wait on: a change of the roster, or the next moment at
// which a trial is due or the fail-fast time is over.
func (c *Cluster) waitFor(now time.Time) (<-chan struct{}, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.without.IsZero() {
		return c.changed, 0
	}
	again := c.without.Add(c.set.cfg.FailFast)
	if next := c.nextTrial.Load(); next < again.UnixNano() {
		again = time.Unix(0, next)
	}
	return c.changed, max(again.Sub(now), time.Millisecond)
}

// beginTrials begins up to limit trials that are due, and gives what is closed
// when the last of them ends; nil when none is due.
func (c *Cluster) beginTrials(now time.Time, limit int) <-chan struct{} {
	if now.UnixNano() < c.nextTrial.Load() {
		return nil
	}
	var begun []*endpoint
	c.mu.Lock()
	for _, e := range c.endpoints {
		if len(begun) < limit && eligible(e.listed) && e.ejection.due(now, !c.without.IsZero()) {
			e.ejection.onTrial = true
			begun = append(begun, e)
		}
	}
	c.schedule()
	c.mu.Unlock()
	var last chan struct{}
	for _, e := range begun {
		done := make(chan struct{})
		if c.set.start(func(ctx context.Context) { c.trial(ctx, e, done) }) {
			last = done
		}
	}
	return last
}

func ctxError(ctx context.Context) error {
	return &upstream.Error{Reason: upstream.ContextReason(ctx), Unsent: true, Unanswered: true, Err: context.Cause(ctx)}
}
