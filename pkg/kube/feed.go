package kube

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

const (
	// listTimeout bounds one list request, or one page of it.
	listTimeout = time.Minute
	// defaultWatchSilence is how long a watch may be without event and bookmark.
	defaultWatchSilence = 3 * time.Minute
	// defaultRefusedPause is the wait between two requests for a kind that may
	// be refused for good.
	defaultRefusedPause = 10 * time.Second
)

// backoff spaces a Reflector's attempts: 0.25 s at first, 3 s at most.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 2 * time.Second, Steps: math.MaxInt32}
}

// feed brings one resource from the server to the sink. It is the store that
// its Reflector fills, and belongs to the Reflector's goroutine.
type feed struct {
	resource
	client kubernetes.Interface
	health *health
	sink   mesh.Sink
	// watchSilence is how long a watch may be without event and bookmark.
	watchSilence time.Duration

	// known has what the sink was told to exist, with its UID.
	known map[mesh.Key]string
	// faulty has the keys with problems.
	faulty map[mesh.Key]bool
	// endWatch stops the watch in use; silence does so when nothing is heard.
	endWatch context.CancelFunc
	silence  *time.Timer
}

var (
	_ cache.TransformingStore      = (*feed)(nil)
	_ cache.ReflectorBookmarkStore = (*feed)(nil)
)

// entry is an object that has been converted. It has so much of an API
// object's metadata as a Reflector's own bookkeeping needs.
type entry struct {
	metav1.ObjectMeta
	key      mesh.Key
	object   mesh.Object
	problems []mesh.Problem
}

// run lists and watches until ctx ends.
func (f *feed) run(ctx context.Context) {
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

// listRequest lists, and tells health how it went.
func (f *feed) listRequest(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := f.waitTurn(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := f.list(limited, f.client, o)
	if err == nil {
		f.health.answered(f.kind)
		return list, nil
	}
	if ctx.Err() == nil && !expired(err) {
		f.failed(err, false)
	}
	return nil, err
}

// watchRequest begins a watch that ends itself when it falls silent, and tells
// health how it went.
func (f *feed) watchRequest(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := f.waitTurn(ctx); err != nil {
		return nil, err
	}
	f.stopWatch()
	watching, cancel := context.WithCancel(ctx)
	f.endWatch, f.silence = cancel, time.AfterFunc(f.watchSilence, cancel)
	w, err := f.watch(watching, f.client, o)
	if err != nil {
		f.stopWatch()
		return nil, f.watchFailed(ctx, err, o.SendInitialEvents != nil)
	}
	f.heard()
	return w, nil
}

// watchFailed judges a watch that did not begin. One that asked for a listing
// as events is followed by a list request at once: unless it was refused, that
// one tells how the kind is. Its error is hidden from the Reflector, which
// would sleep on some without heeding ctx.
func (f *feed) watchFailed(ctx context.Context, err error, listing bool) error {
	if ctx.Err() != nil || expired(err) {
		return err
	}
	if listing && !refused(err) {
		return errors.New(oneLine(err))
	}
	f.failed(err, true)
	return err
}

func (f *feed) failed(err error, watch bool) {
	if f.health.requestFailed(f.kind, err, watch) {
		f.sink.Synced()
	}
}

// waitTurn waits while the kind is refused.
func (f *feed) waitTurn(ctx context.Context) error {
	pause := f.health.pause(f.kind)
	if pause == 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *feed) stopWatch() {
	if f.endWatch != nil {
		f.silence.Stop()
		f.endWatch()
		f.endWatch = nil
	}
}

// heard notes an event.
func (f *feed) heard() {
	f.health.heard(f.kind)
	if f.endWatch != nil {
		f.silence.Reset(f.watchSilence)
	}
}

// Transformer lets the Reflector convert objects as they come off the wire.
func (f *feed) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return f.entryOf(o) }
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
	f.remove(mesh.Meta{Key: e.key, UID: string(e.UID), ResourceVersion: e.ResourceVersion})
	return nil
}

// Bookmark is an event of the watch: nothing has changed up to that version.
func (f *feed) Bookmark(string) error {
	f.heard()
	return nil
}

// Replace is a full listing.
func (f *feed) Replace(list []any, _ string) error {
	listed := make(map[mesh.Key]bool, len(list))
	for _, o := range list {
		e, err := f.entryOf(o)
		if err != nil {
			return err
		}
		listed[e.key] = true
		f.put(e)
	}
	for key, uid := range f.known {
		if !listed[key] {
			// Without a version: the listing's own is that of all objects. The
			// UID is never used again, so it says enough.
			f.remove(mesh.Meta{Key: key, UID: uid})
		}
	}
	if f.health.delivered(f.kind) {
		f.sink.Synced()
	}
	return nil
}

// Resync never happens: there is nothing here that the sink does not have.
func (f *feed) Resync() error { return nil }

func (f *feed) put(e *entry) {
	f.complain(e.key, e.problems)
	if e.object == nil {
		return
	}
	f.known[e.key] = string(e.UID)
	f.sink.Put(e.object)
}

func (f *feed) remove(m mesh.Meta) {
	f.complain(m.Key, nil)
	delete(f.known, m.Key)
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
