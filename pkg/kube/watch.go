package kube

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchRequest begins a watch that ends itself when it falls silent, and tells
// health how it went.
func (f *feed) watchRequest(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := f.waitTurn(ctx); err != nil {
		return nil, err
	}
	f.stopWatch()
	began := time.Now()
	if !f.watchBegan.IsZero() && began.Sub(f.watchBegan) < f.times.watch*3/4 {
		// The server may be another one now, or have been restored meanwhile.
		f.health.interrupted(f.kind)
	}
	f.watchBegan = time.Time{}
	f.streaming, f.patience = o.SendInitialEvents != nil, f.pace.grace(f.silence, 2*f.interval)
	if f.streaming {
		f.patience = f.interval
	} else {
		seconds := int64(f.times.watch / time.Second)
		o.TimeoutSeconds = &seconds
	}
	watching, cancel := context.WithCancel(ctx)
	f.endWatch, f.quiet = cancel, newQuiet(f.patience, f.probe, func() { f.fellSilent(cancel) })
	w, err := f.resource.watch(watching, f.client, o)
	if err != nil {
		f.stopWatch()
		return nil, f.watchFailed(ctx, err, f.streaming, began)
	}
	f.watchBegan = began
	f.health.watching(f.kind)
	f.awaitMore()
	return w, nil
}

// fellSilent gives up a watch that did not even end when it was asked to. Where
// listing anew showed again and again that nothing was missed, the watch alone
// is begun again.
func (f *feed) fellSilent(endWatch context.CancelFunc) {
	f.relist(silent, "the watch neither spoke nor ended")
	endWatch()
}

// watchFailed judges a watch that did not begin. One that asked for a listing
// as events is followed by a list request at once: unless it was refused, that
// one tells how the kind is. Its error is hidden from the Reflector, which
// would sleep on some without heeding ctx.
func (f *feed) watchFailed(ctx context.Context, err error, listing bool, began time.Time) error {
	if ctx.Err() != nil || expired(err) {
		return err
	}
	if listing && !refused(err) {
		return errors.New(oneLine(err))
	}
	f.failed(err, true, began)
	return err
}

// endListing sees to it that a watch that began with a listing gives way to one
// that ends in time, as soon as it is quiet: only such a one proves that it delivers.
func (f *feed) endListing() {
	if !f.streaming || f.endWatch == nil {
		return
	}
	f.quiet.stop()
	f.patience = f.times.watch
	f.quiet = newQuiet(f.patience, f.probe, f.endWatch)
}

func (f *feed) stopWatch() {
	if f.endWatch != nil {
		f.quiet.stop()
		f.endWatch()
		f.endWatch = nil
	}
}

// heard notes an event.
func (f *feed) heard() {
	f.health.heard(f.kind)
	f.awaitMore()
}

func (f *feed) awaitMore() {
	if f.endWatch != nil {
		f.quiet.heard(f.patience)
	}
}
