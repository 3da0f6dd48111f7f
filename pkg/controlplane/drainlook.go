package controlplane

import (
	"context"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

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
