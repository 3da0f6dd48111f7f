package controlplane

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
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

// drainLook is what one look at one drain came to.
type drainLook struct {
	at     time.Time
	facts  drain.Facts
	recall drain.Recall
	report drain.Report
	// next is when the mere passing of time may change the report; zero for never.
	next time.Time
}

// changed takes back that it is drained, until another look.
func (l *drainLook) changed(now time.Time) {
	l.facts.Doubts = append(l.facts.Doubts, drain.Wait{Reason: drain.Unanswered, Detail: "where it is used changed while the streams were asked"})
	l.report, _ = drain.Decide(l.facts)
	l.next = now
}

// unsettled says that it is drained only since a moment.
func (l *drainLook) unsettled(since, until time.Time) {
	l.facts.Doubts = append(l.facts.Doubts, drain.Wait{
		Reason: drain.Settling, Since: since, Detail: "all have acknowledged, and what was sent before may be on its way",
	})
	l.report, _ = drain.Decide(l.facts)
	l.next = until
}

// look asks every stream about all drains that it may decide.
func (d *drains) look(ctx context.Context) []drainLook {
	now := time.Now()
	looks, recalls := make([]drainLook, len(d.waiting)), make([]drain.Recall, len(d.waiting))
	needed := false
	for i, a := range d.waiting {
		l := &looks[i]
		l.at = now
		l.facts, l.recall = d.facts(a.target, now)
		// What cannot be over yet need not be known in full before the time is up.
		if sofar, _ := drain.Decide(l.facts); sofar.Drained || !now.Before(a.deadline) {
			recalls[i], needed = l.recall, true
		}
	}
	streams, complete, lost := make([][]drain.Stream, len(recalls)), true, time.Time{}
	if needed {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		streams, complete, lost = d.server.xds.Drains(ctx, recalls, d.readings)
	}
	for i, a := range d.waiting {
		l := &looks[i]
		l.facts.Streams, l.facts.Doubts, l.facts.Fates = streams[i], doubts(now, complete, lost), d.fates(streams[i], now)
		l.report, l.next = drain.Decide(l.facts)
		if l.report.Drained && d.changed(a.target, l.facts.Endpoints, l.recall, now) {
			l.changed(now)
		}
		if !complete {
			l.next = soonest(l.next, now.Add(askTimeout))
		}
	}
	return looks
}

// keep has what was found drained stay so, unless it was listed anew meanwhile:
// place in waiting → what was known of its uses then.
func (d *drains) keep(ctx context.Context, looks []drainLook) map[int]drain.Recall {
	kept := make(map[int]drain.Recall)
	if !slices.ContainsFunc(looks, func(l drainLook) bool { return l.report.Drained }) {
		return kept
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// What the loop does not take in time waits for the next round.
	_ = d.server.loop.ask(ctx, func() {
		for i, a := range d.waiting {
			if l := &looks[i]; l.report.Drained && !d.changed(a.target, l.facts.Endpoints, l.recall, l.at) {
				d.server.loop.keepDrained(a.target, l.facts.Endpoints)
				kept[i] = l.recall
			}
		}
	})
	return kept
}

// changed tells whether what the streams were asked about is no longer all that
// was to be asked: they may have got a form meanwhile that lists the endpoint anew.
func (d *drains) changed(target drain.Target, endpoints []drain.Endpoint, recall drain.Recall, now time.Time) bool {
	again, recalled := d.facts(target, now)
	return !slices.Equal(again.Endpoints, endpoints) || !slices.Equal(recalled.Uses, recall.Uses)
}

// facts are what is known without the streams.
func (d *drains) facts(target drain.Target, now time.Time) (drain.Facts, drain.Recall) {
	f := drain.Facts{Now: now, Known: true, Endpoints: []drain.Endpoint{target.Endpoint}}
	if target.Pod != "" {
		f.Endpoints, f.Known = d.places.Pod(target.Namespace, target.Pod, now)
	}
	if at := d.readyAt.Load(); at != 0 {
		f.ReadyAt = time.Unix(0, at)
	}
	recall := d.history.Recall(f.Endpoints)
	f.Listed = d.listed(recall)
	return f, recall
}

// listed gives the uses of which the newest form, as nodes see it that say nothing of themselves, lists the endpoint.
func (d *drains) listed(r drain.Recall) []drain.Wait {
	var out []drain.Wait
	view := d.server.store.View(mesh.View{Listeners: mesh.ListenersAPI})
	for _, u := range r.Uses {
		if u.Clean != 0 {
			continue
		}
		b := view.Body(u.Resource.Type, u.Name)
		if b == nil {
			continue
		}
		if listing, ok := d.readings.Of(u.Resource, b.Version, b.Value); ok && !listing[u.Endpoint] {
			continue
		}
		w := drain.Wait{
			Reason: drain.Listed, Cluster: u.Resource.Name, Endpoint: u.Endpoint.String(), Since: u.Since,
			Detail: "the configuration still lists it as usable",
		}
		if d.places.Terminating(u.Endpoint) {
			w.Reason, w.Detail = drain.LastEndpoint, "it terminates, but the service has no other endpoint (KEP-1669)"
		}
		out = append(out, w)
	}
	return out
}

// fates are those of the pods whose proxies have left.
func (d *drains) fates(streams []drain.Stream, now time.Time) map[mesh.Key]drain.Fate {
	var out map[mesh.Key]drain.Fate
	for _, s := range streams {
		if s.LeftAt.IsZero() || s.Pod.Name == "" {
			continue
		}
		if out == nil {
			out = make(map[mesh.Key]drain.Fate)
		}
		out[s.Pod] = d.places.Fate(s.Pod, now)
	}
	return out
}

func doubts(now time.Time, complete bool, lost time.Time) []drain.Wait {
	var out []drain.Wait
	if !complete {
		out = append(out, drain.Wait{Reason: drain.Unanswered, Detail: "not all streams could be asked in time"})
	}
	if !lost.IsZero() && now.Sub(lost) < drain.Grace {
		out = append(out, drain.Wait{Reason: drain.Unanswered, Since: lost, Detail: "more streams have ended lately than are remembered"})
	}
	return out
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
