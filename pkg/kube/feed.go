package kube

import (
	"context"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

// defaultRefusedPause is the wait between two requests for a kind that may be
// refused for good.
const defaultRefusedPause = 10 * time.Second

// backoff spaces a Reflector's attempts: 0.25 s at first, 3 s at most.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 2 * time.Second, Steps: math.MaxInt32}
}

// feed brings one resource from the server to the sink. It is the store that
// its Reflector fills.
type feed struct {
	// set once
	resource
	client kubernetes.Interface
	health *health
	sink   mesh.Sink
	times
	log     hclog.Logger
	relists *prometheus.CounterVec

	// held and restarts are shared with keepChecking, and guard themselves
	held     *held
	restarts restarts

	// owned by the Reflector's goroutine
	// faulty has the keys with problems.
	faulty map[mesh.Key]bool
	// endWatch stops the watch in use; quiet does something when nothing is heard for long.
	endWatch context.CancelFunc
	quiet    *time.Timer
	// patience is how long quiet waits; streaming tells that the watch began with a listing.
	patience  time.Duration
	streaming bool
	// watchBegan is when the last watch began; zero where it did not.
	watchBegan time.Time
}

var (
	_ cache.TransformingStore      = (*feed)(nil)
	_ cache.ReflectorBookmarkStore = (*feed)(nil)
	_ cache.ResourceVersionUpdater = (*feed)(nil)
)

// entry is an object that has been converted. It has so much of an API
// object's metadata as a Reflector's own bookkeeping needs.
type entry struct {
	metav1.ObjectMeta
	key      mesh.Key
	object   mesh.Object
	problems []mesh.Problem
}

func (e *entry) form() form { return form{uid: string(e.UID), version: e.ResourceVersion} }

// run lists and watches until ctx ends, with one Reflector after the other: a
// new one is what lists anew.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		reflecting, cancel := f.restarts.begin(ctx)
		f.reflect(reflecting)
		cancel()
	}
}

func (f *feed) reflect(ctx context.Context) {
	log := klog.FromContext(ctx) //nolint:forbidigo // that is where client-go keeps it
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  f.listRequest,
		WatchFuncWithContext: f.watchRequest,
	}, f.client)
	r := cache.NewReflectorWithOptions(lw, f.example, f, cache.ReflectorOptions{
		Name: f.plural, Logger: &log, Backoff: backoff(),
	})
	r.RunWithContext(ctx)
	f.stopWatch()
}

// relist has the kind listed anew, unless that is under way or has been done
// for nothing too often.
func (f *feed) relist(reason relistReason, detail string) {
	if f.restarts.ask(reason, time.Now()) {
		f.noteRelist(reason, detail)
	}
}

func (f *feed) noteRelist(reason relistReason, detail string) {
	f.relists.WithLabelValues(string(reason)).Inc()
	f.log.Warn("kind is listed anew", "kind", f.plural, "reason", string(reason), "detail", detail)
	f.health.doubted(f.kind, reason, detail)
}

// listRequest lists, and tells health how it went. The Reflector would take a
// first listing from any cache, however old; it gets the server's own state.
func (f *feed) listRequest(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := f.waitTurn(ctx); err != nil {
		return nil, err
	}
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, f.interval)
	defer cancel()
	list, err := f.list(limited, f.client, o)
	if err == nil {
		f.health.answered(f.kind)
		return list, nil
	}
	if ctx.Err() == nil && !expired(err) {
		f.failed(err, false, began)
		if unanswered(err) && f.health.heardSince(began) {
			f.noteRelist(noAnswer, "the list request will be repeated")
		}
	}
	return nil, err
}

func (f *feed) failed(err error, watch bool, began time.Time) {
	if f.health.requestFailed(f.kind, err, watch, began) {
		f.sink.Synced()
	}
}

// waitTurn waits while the kind is refused.
func (f *feed) waitTurn(ctx context.Context) error {
	if pause := f.health.pause(f.kind); pause > 0 {
		return sleep(ctx, pause)
	}
	return nil
}

// sleep waits for so long; the error is that of ctx, if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Transformer lets the Reflector convert objects as they come off the wire. Of
// a listing that a watch begins with, it is all that is heard.
func (f *feed) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		f.awaitMore()
		return f.entryOf(o)
	}
}

// entryOf converts an API object; an entry is given as it is.
func (f *feed) entryOf(o any) (*entry, error) {
	if e, ok := o.(*entry); ok {
		return e, nil
	}
	r, ok := o.(apiObject)
	if !ok {
		return nil, fmt.Errorf("convert %T: not an API object", o)
	}
	e := &entry{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.GetNamespace(), Name: r.GetName(), UID: r.GetUID(), ResourceVersion: r.GetResourceVersion(),
		},
		key: mesh.Key{Kind: f.kind, Namespace: r.GetNamespace(), Name: r.GetName()},
	}
	var err error
	if e.object, e.problems, err = object.Convert(r); err != nil {
		e.object, e.problems = nil, []mesh.Problem{{Object: e.key.String(), Reason: oneLine(err)}}
	}
	return e, nil
}

type apiObject interface {
	runtime.Object
	metav1.Object
}

// Add is an event of the watch.
func (f *feed) Add(o any) error {
	f.heard()
	e, err := f.entryOf(o)
	if err != nil {
		return err
	}
	if f.held.outdated(e.key, e.form()) {
		f.relist(rewound, e.key.String()+" came in an older form")
		return nil
	}
	f.put(e)
	return nil
}

// Update is an event of the watch.
func (f *feed) Update(o any) error { return f.Add(o) }

// Delete is an event of the watch.
func (f *feed) Delete(o any) error {
	f.heard()
	e, err := f.entryOf(o)
	if err != nil {
		return err
	}
	if f.held.outdated(e.key, e.form()) {
		f.relist(rewound, e.key.String()+" was deleted in an older form")
		return nil
	}
	f.remove(mesh.Meta{Key: e.key, UID: string(e.UID), ResourceVersion: e.ResourceVersion})
	return nil
}

// UpdateResourceVersion follows each event and bookmark.
func (f *feed) UpdateResourceVersion(version string) {
	if f.held.advance(version) {
		f.relist(rewound, "the watch is at version "+version)
	}
}

// Bookmark is an event of the watch: nothing has changed up to that version.
func (f *feed) Bookmark(string) error {
	f.heard()
	return nil
}

// Replace is a full listing.
func (f *feed) Replace(list []any, version string) error {
	entries := make([]*entry, 0, len(list))
	listed := make(map[mesh.Key]form, len(list))
	for _, o := range list {
		e, err := f.entryOf(o)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		listed[e.key] = e.form()
	}
	was := f.held.begin(listed, version, f.restarts.asked() == rewound)
	for _, e := range entries {
		f.put(e)
	}
	for key, form := range was.gone {
		// Without a version: the listing's own is that of all objects. The
		// UID is never used again, so it says enough.
		f.remove(mesh.Meta{Key: key, UID: form.uid})
	}
	if asked := f.restarts.listed(was.news, time.Now(), f.interval); was.rewound && asked != rewound {
		f.noteRelist(rewound, "the listing is at version "+version)
	}
	if f.health.delivered(f.kind) {
		f.sink.Synced()
	}
	f.endListing()
	return nil
}

// Resync never happens: there is nothing here that the sink does not have.
func (f *feed) Resync() error { return nil }

func (f *feed) put(e *entry) {
	f.complain(e.key, e.problems)
	if e.object == nil {
		return
	}
	e.object.Metadata().Rewinds = f.held.put(e.key, e.form())
	f.sink.Put(e.object)
}

func (f *feed) remove(m mesh.Meta) {
	f.complain(m.Key, nil)
	m.Rewinds = f.held.remove(m.Key)
	f.sink.Delete(m)
}

// complain passes an object's problems on, or that it has none any more.
func (f *feed) complain(key mesh.Key, problems []mesh.Problem) {
	if len(problems) == 0 && !f.faulty[key] {
		return
	}
	if len(problems) == 0 {
		delete(f.faulty, key)
	} else {
		f.faulty[key] = true
	}
	f.health.found(f.kind, key, problems)
}
