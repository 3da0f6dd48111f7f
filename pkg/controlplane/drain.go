package controlplane

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/drain"
)

const (
	// maxDrains bounds the drains that are waited for at a time.
	maxDrains = 1000
	// betweenRounds is the least time between two looks at all streams; it is
	// longer where a look takes long, so that at most a part in idleShare of the time goes into looking, up to maxBetween.
	betweenRounds = 20 * time.Millisecond
	idleShare     = 5
	maxBetween    = time.Second
)

// drains waits for endpoints to be drained. All that are waited for are looked
// at together, in rounds, whenever something has changed: a publication, a
// request of a stream, a stream's end, a deadline. So fifty of them cost one
// question to each stream a round, and nothing while nothing happens.
type drains struct {
	// set once
	server    *Server
	history   *drain.History
	places    *drain.Places
	asks      chan *drainAsk
	published chan struct{}

	// owned by run
	waiting  []*drainAsk
	readings *drain.Readings
	settler  *drain.Settler
	// last is when the last look ended, between what has to lie between it and the next.
	last    time.Time
	between time.Duration

	// atomic
	// readyAt is when the source synced, in Unix nanoseconds; 0 before.
	readyAt atomic.Int64
}

// drainAsk is one who waits.
type drainAsk struct {
	target   drain.Target
	deadline time.Time
	// done is the asker's: when it is over, nobody waits for answer any more.
	done   <-chan struct{}
	answer chan drain.Report // has room for one
}

func newDrains(s *Server) *drains {
	return &drains{
		server: s, history: drain.NewHistory(time.Now(), 0), places: drain.NewPlaces(), readings: drain.NewReadings(),
		settler: drain.NewSettler(s.cfg.DrainSettle),
		asks:    make(chan *drainAsk), published: make(chan struct{}, 1),
	}
}

// begin says that nodes can be served from now on.
func (d *drains) begin() { d.readyAt.Store(time.Now().UnixNano()) }

// Drain implements admin.Drainer.
func (s *Server) Drain(ctx context.Context, target drain.Target, timeout time.Duration) (drain.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask := &drainAsk{target: target, deadline: time.Now().Add(timeout), done: ctx.Done(), answer: make(chan drain.Report, 1)}
	select {
	case s.drains.asks <- ask:
	case <-s.done:
		return drain.Report{}, fmt.Errorf("drain %s: the server is stopping: %w", target, admin.ErrUnavailable)
	case <-ctx.Done():
		return drain.Report{}, ctx.Err()
	}
	select {
	case r, ok := <-ask.answer:
		if !ok {
			return drain.Report{}, fmt.Errorf("drain %s: %d drains are waited for already, or the server is stopping: %w", target, maxDrains, admin.ErrUnavailable)
		}
		r.Target, r.Instance = target.String(), s.xds.Instance()
		return r, nil
	case <-ctx.Done():
		return drain.Report{}, ctx.Err()
	}
}

// run serves until ctx ends.
func (d *drains) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer d.giveUp()
	for {
		stirred, published := d.server.xds.Stirred(), (<-chan struct{})(d.published)
		if len(d.waiting) == 0 {
			stirred, published = nil, nil // a token that waits is one look too many later
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-d.asks:
			d.add(a)
		case <-stirred:
		case <-published:
		case <-timer.C:
		}
		if wait := d.between - time.Since(d.last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if next := d.round(ctx); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

func (d *drains) add(a *drainAsk) {
	if len(d.waiting) >= maxDrains {
		close(a.answer)
		return
	}
	d.waiting = append(d.waiting, a)
}

func (d *drains) giveUp() {
	for _, a := range d.waiting {
		close(a.answer)
	}
}

// round looks once, answers those who are done, and gives when to look again
// even if nothing happens.
//
// What is found drained has to stay so: the loop is told to keep it drained, and
// then the streams are asked again, since one may have come meanwhile that was told otherwise.
func (d *drains) round(ctx context.Context) (next time.Time) {
	d.waiting = slices.DeleteFunc(d.waiting, func(a *drainAsk) bool { return isClosed(a.done) })
	if len(d.waiting) == 0 {
		return time.Time{}
	}
	began := time.Now()
	looks := d.look(ctx)
	kept := d.keep(ctx, looks)
	if len(kept) > 0 {
		looks = d.look(ctx)
	}
	d.readings.Turn()
	d.last = time.Now()
	d.between = min(max(betweenRounds, idleShare*d.last.Sub(began)), maxBetween)

	still := d.waiting[:0]
	for i, a := range d.waiting {
		l := &looks[i]
		if before, ok := kept[i]; l.report.Drained && (!ok || !slices.Equal(l.recall.Uses, before.Uses)) {
			l.changed(d.last)
		}
		if since, until := d.settler.Look(a.target, l.report.Drained, l.recall.Uses, d.last); !until.IsZero() {
			l.unsettled(since, until)
		}
		if l.report.Drained || !l.at.Before(a.deadline) {
			a.answer <- l.report
			continue
		}
		still = append(still, a)
		next = soonest(next, a.deadline, l.next)
	}
	clear(d.waiting[len(still):])
	d.waiting = still
	return next
}

func soonest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if !t.IsZero() && (out.IsZero() || t.Before(out)) {
			out = t
		}
	}
	return out
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
