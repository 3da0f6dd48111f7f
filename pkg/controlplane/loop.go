package controlplane

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/hashicorp/go-hclog"
)

// loop owns the translator and is the store's only publisher.
type loop struct {
	// set once
	queue   *queue
	store   *snapshot.Store
	log     hclog.Logger
	metrics *metrics
	asks    chan func()
	// onSync is called once, when what the sources held at the start is published.
	onSync func()
	// history remembers what was published since then.
	history *history.Log
	// onPublished is told of it as well; it must not block, and may be nil.
	onPublished func([]history.Entry)
	// places and uses are told of every object and of every update before it is published; published then gets a token.
	places    *drain.Places
	uses      *drain.History
	published chan struct{}

	// owned by run
	translator *translate.Translator
	merger     *merger
	logged     map[mesh.Problem]bool

	// atomic
	synced   atomic.Bool
	problems atomic.Pointer[[]mesh.Problem]
}

// newLoop makes a loop that waits for the sync of withFiles, too, if that is set.
func newLoop(c translate.Config, withFiles bool, store *snapshot.Store, log hclog.Logger, m *metrics) *loop {
	l := &loop{
		history: history.New(0),
		queue:   newQueue(withFiles), store: store, log: log, metrics: m, asks: make(chan func()),
		translator: translate.New(c), merger: newMerger(), logged: make(map[mesh.Problem]bool),
	}
	l.problems.Store(&[]mesh.Problem{})
	return l
}

// run translates and publishes until ctx ends.
func (l *loop) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ask := <-l.asks:
			ask()
		case <-l.queue.ready:
			l.apply(l.queue.take())
		}
	}
}

// apply translates changes and publishes what came of them, static resources
// first, so that what they hide does not show. It reports whether anything was published. What comes before the sync is published as well:
// nobody is served from the store until synced is set, and then all of it is there.
func (l *loop) apply(b batch) bool {
	published := false
	if b.files != nil {
		now := time.Now()
		update := l.merger.replace(*b.files, l.store.Snapshot().Resource)
		receivedAt(update, now, l.synced.Load())
		published = l.publish(update, now)
	}
	if !l.synced.Load() {
		for i := range b.changes {
			b.changes[i].ReceivedAt = time.Time{} // it was there before us
		}
	}
	before := l.translator.Translations()
	l.notePlaces(b.changes, time.Now())
	update := l.translator.Apply(b.changes)
	now := time.Now()
	l.metrics.translations.Add(float64(l.translator.Translations() - before))
	published = l.publish(l.merger.generated(update), now) || published
	if b.synced && !l.synced.Load() {
		l.log.Info("source synced", "generation", l.store.Snapshot().Generation())
		l.history.Begin(l.store.Snapshot().Generation(), now)
		l.synced.Store(true)
		l.onSync()
	}
	l.noteProblems()
	select {
	case l.published <- struct{}{}:
	default: // whoever waits looks at everything anyway
	}
	return published
}

func (l *loop) publish(u mesh.Update, at time.Time) bool {
	before := l.store.Snapshot()
	l.uses.Note(u, before.Generation()+1, at)
	snap, published := l.store.Publish(u, at)
	if published {
		l.remember(u, before, snap, at)
		l.metrics.generation.Set(float64(snap.Generation()))
		l.log.Debug("published", "generation", snap.Generation(), "put", len(u.Put), "removed", len(u.Remove))
	}
	return published
}

// keepDrained has the translator keep a target drained, and publishes what changes by that: the forms of views
// in which it was the only endpoint. Called in the loop.
func (l *loop) keepDrained(target drain.Target, endpoints []drain.Endpoint) {
	now := time.Now()
	d := translate.Drained{}
	cause := mesh.Cause{ChangedAt: now, ChangedBy: mesh.ByReceipt, ReceivedAt: now}
	if target.Pod != "" {
		d.Pod = mesh.Key{Kind: mesh.KindPod, Namespace: target.Namespace, Name: target.Pod}
		d.UID, cause.Object = l.places.UID(d.Pod), d.Pod
	}
	for _, e := range endpoints {
		d.Endpoints = append(d.Endpoints, netip.AddrPortFrom(e.Address, e.Port))
	}
	if l.publish(l.merger.generated(l.translator.KeepDrained(d, cause)), now) {
		select {
		case l.published <- struct{}{}:
		default: // whoever waits looks at everything anyway
		}
	}
}

// notePlaces passes on where pods are, and wakes those who wait for that.
func (l *loop) notePlaces(changes []translate.Change, now time.Time) {
	for _, c := range changes {
		if c.Put != nil {
			l.places.Put(c.Put, now)
		} else {
			l.places.Delete(c.Delete, now)
		}
	}
}

// noteProblems shows the problems of translation and of merging and logs each new one once.
func (l *loop) noteProblems() {
	now := slices.Concat(l.translator.Problems(), l.merger.problems())
	old := *l.problems.Load()
	if slices.Equal(old, now) {
		return
	}
	l.problems.Store(&now)
	current := make(map[mesh.Problem]bool, len(now))
	for _, p := range now {
		current[p] = true
		if !l.logged[p] {
			l.log.Warn("object has a problem", "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
	}
	l.logged = current
}

// ask runs f in the loop and waits for it, until ctx ends.
func (l *loop) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.asks <- func() { defer close(done); f() }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// awaitHistory waits, for a bounded time, until the history has what is published already: streams
// may have sent that before it is written down.
func (l *loop) awaitHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = l.ask(ctx, func() {})
}

// Reconcile implements refresh.Reconciler: live becomes the truth about a service.
func (l *loop) Reconcile(ctx context.Context, service mesh.Key, live []mesh.Object) (changed bool, err error) {
	err = l.ask(ctx, func() {
		if diff := l.translator.Differs(service, live); len(diff) > 0 {
			l.log.Warn("the live read differs from what was known", "service", service.String(), "objects", len(diff))
			for i := range diff {
				diff[i].ReceivedAt = time.Now()
			}
			changed = l.apply(batch{changes: diff})
		}
	})
	return changed, err
}

// ServicesOf implements refresh.Services. The loop answers within one
// translation; clusters that it cannot be asked about in time are unknown.
func (l *loop) ServicesOf(clusters []string) map[string]mesh.Key {
	services := make(map[string]mesh.Key)
	if len(clusters) == 0 {
		return services
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	_ = l.ask(ctx, func() {
		for _, cluster := range clusters {
			if service, ok := l.translator.ServiceOf(cluster); ok {
				services[cluster] = service
			}
		}
	})
	return services
}

// askTimeout bounds how long others wait for the owner of a stream or of the loop.
const askTimeout = 2 * time.Second
