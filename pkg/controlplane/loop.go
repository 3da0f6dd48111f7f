package controlplane

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

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

	// owned by run
	translator *translate.Translator
	logged     map[mesh.Problem]bool

	// atomic
	synced   atomic.Bool
	problems atomic.Pointer[[]mesh.Problem]
}

func newLoop(c translate.Config, store *snapshot.Store, log hclog.Logger, m *metrics) *loop {
	l := &loop{
		queue: newQueue(), store: store, log: log, metrics: m, asks: make(chan func()),
		translator: translate.New(c), logged: make(map[mesh.Problem]bool),
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
			changes, synced := l.queue.take()
			l.apply(changes, synced)
		}
	}
}

// apply translates changes and publishes what came of them. It reports whether
// anything was published. What comes before the sync is published as well:
// nobody is served from the store until synced is set, and then all of it is there.
func (l *loop) apply(changes []translate.Change, synced bool) bool {
	begin := time.Now()
	l.metrics.sourceDelay(changes, begin)
	before := l.translator.Translations()
	update := l.translator.Apply(changes)
	now := time.Now()
	l.metrics.translateDelay.Observe(now.Sub(begin).Seconds())
	l.metrics.translations.Add(float64(l.translator.Translations() - before))
	snap, published := l.store.Publish(update, now)
	if published {
		l.metrics.generation.Set(float64(snap.Generation()))
		l.log.Debug("published", "generation", snap.Generation(), "put", len(update.Put), "removed", len(update.Remove))
	}
	if synced && !l.synced.Swap(true) {
		l.log.Info("source synced", "generation", snap.Generation())
	}
	l.noteProblems()
	return published
}

// noteProblems shows the translator's problems and logs each new one once.
func (l *loop) noteProblems() {
	now := l.translator.Problems()
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

// Reconcile implements refresh.Reconciler: live becomes the truth about a service.
func (l *loop) Reconcile(ctx context.Context, service mesh.Key, live []mesh.Object) (changed bool, err error) {
	err = l.ask(ctx, func() {
		if diff := l.translator.Differs(service, live); len(diff) > 0 {
			l.log.Warn("the live read differs from what was known", "service", service.String(), "objects", len(diff))
			changed = l.apply(diff, false)
		}
	})
	return changed, err
}

// ServiceOf implements refresh.Services. The loop answers within one
// translation; a cluster that it cannot be asked about in time is unknown.
func (l *loop) ServiceOf(cluster string) (service mesh.Key, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	_ = l.ask(ctx, func() { service, ok = l.translator.ServiceOf(cluster) })
	return service, ok
}

// askTimeout bounds how long others wait for the owner of a stream or of the loop.
const askTimeout = 2 * time.Second
