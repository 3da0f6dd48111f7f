package kube

import (
	"context"
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

	// held, restarts and pace are shared with keepChecking and others, and guard themselves
	held     *held
	pace     *pace
	restarts restarts

	// owned by the Reflector's goroutine
	// faulty has the keys with problems.
	faulty map[mesh.Key]bool
	// endWatch stops the watch in use; quiet does something when nothing is heard for long.
	endWatch context.CancelFunc
	quiet    *quiet
	// patience is how long quiet waits; streaming tells that the watch began with a listing.
	patience  time.Duration
	streaming bool
	// watchBegan is when the last watch began; zero where it did not.
	watchBegan time.Time
}

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
	requests := &cache.ListWatch{ListWithContextFunc: f.listRequest, WatchFuncWithContext: f.watchRequest}
	lw := cache.ToListWatcherWithWatchListSemantics(requests, f.client)
	if f.restarts.asked() != "" {
		lw = plainLists{requests} // where watches are in doubt, none is to bring the listing
	}
	r := cache.NewReflectorWithOptions(lw, f.example, f, cache.ReflectorOptions{
		Name: f.plural, Logger: &log, Backoff: backoff(),
	})
	r.RunWithContext(ctx)
	f.stopWatch()
}

// plainLists has a Reflector list with list requests, where it would take a
// listing as the first events of a watch (KEP-3157).
type plainLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks for that.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// relist has the kind listed anew, unless that is under way or has been done
// for nothing too often.
func (f *feed) relist(reason relistReason, detail string) {
	if end := f.restarts.ask(reason, time.Now()); end != nil {
		f.noteRelist(reason, detail)
		end()
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
