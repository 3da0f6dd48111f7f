package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// Config is what New needs.
type Config struct {
	// Name is the node's; Number tells it from others, from 1 to 254. Address is the node's own,
	// on the sandbox; Zone and Region may be "".
	Name         string
	Number       int
	Address      netip.Addr
	Zone, Region string
	// API has the credentials of the user system:node:NAME.
	API *rest.Config
	// Network is what pods are put on, DNS the name server in their resolv.conf.
	Network *sandbox.Network
	DNS     netip.Addr
	// Dir keeps the pods' volumes and logs: a directory named after a pod's UID, in which
	// CONTAINER.log is what a container wrote. It exists, and everybody may pass it.
	Dir string
	// Enter is the path of command enter.
	Enter string
	// Image tells what stands for an image.
	Image func(name string) (Image, bool)
	// BackOff is the pause before the second restart of a container (kubelet: 10 s); the first one is at once.
	BackOff time.Duration
	// Beat is how often the node's lease is renewed (kubelet: 10 s).
	Beat time.Duration
	// Logger may be nil.
	Logger hclog.Logger
}

// Kubelet is one node.
type Kubelet struct {
	// Trace is what happened on it.
	Trace Trace

	config    Config
	client    kubernetes.Interface
	log       hclog.Logger
	addresses addresses
	dead      atomic.Bool
	// restoring: what was read from the API counts for nothing.
	restoring atomic.Bool

	mu      sync.Mutex // guards workers
	workers map[types.UID]*worker
	wg      sync.WaitGroup
}

// errDead is for what a dead node does not do.
var errDead = errors.New("the node is dead")

// New makes a node. It sends nothing.
func New(c Config) (*Kubelet, error) {
	client, err := kubernetes.NewForConfig(c.API)
	if err != nil {
		return nil, fmt.Errorf("kubelet of %s: %w", c.Name, err)
	}
	k := &Kubelet{config: c, client: client, log: c.Logger, workers: make(map[types.UID]*worker)}
	if k.log == nil {
		k.log = hclog.NewNullLogger()
	}
	k.addresses.node = byte(c.Number) //nolint:gosec // within bounds by its comment
	return k, nil
}

// Run registers the node and runs its pods until ctx ends, and then kills them.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := k.register(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() { k.beat(ctx) })
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: k.source(), ObjectType: &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.seen(ctx, o) },
			UpdateFunc: func(_, o any) { k.seen(ctx, o) },
			DeleteFunc: k.unseen,
		},
	})
	controller.RunWithContext(ctx)
	k.wg.Wait()
	return nil
}

// Restoring says that the API's store is being restored, and when it is done. Pods are listed anew after that, as
// by a kubelet that is started anew, which Kubernetes' documentation of a restore asks for: a watch that goes on
// from a version of before hears of nothing until the new versions have come so far.
func (k *Kubelet) Restoring(on bool) { k.restoring.Store(on) }

// source gives the node's pods.
func (k *Kubelet) source() cache.ListerWatcher {
	pods := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", v1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", k.config.Name))
	watch := pods.WatchFuncWithContext
	pods.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		if k.restoring.Load() {
			return nil, apierrors.NewResourceExpired("the store is being restored")
		}
		return watch(ctx, o)
	}
	return pods
}

// seen takes a pod as it is now.
func (k *Kubelet) seen(ctx context.Context, o any) {
	pod, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	pod = pod.DeepCopy()
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.workers[pod.UID]
	if w == nil {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			return
		}
		w = k.newWorker(ctx, pod)
		if err := w.makeDir(); err != nil {
			k.log.Error("pod directory", "err", err)
			return
		}
		k.workers[pod.UID] = w
		k.wg.Go(func() {
			w.run(ctx)
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.workers, pod.UID)
		})
		return
	}
	w.latest.Store(pod)
	go w.do(w.update)
}

func (k *Kubelet) unseen(o any) {
	if u, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = u.Obj
	}
	pod, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	w := k.workers[pod.UID]
	k.mu.Unlock()
	if w != nil {
		go w.do(func() {
			w.removed = true
			w.cut()
		})
	}
}

// update takes the pod as it was seen last. Resource versions say nothing about that: the store may go back.
func (w *worker) update() {
	before, pod := w.pod, w.latest.Load()
	w.pod = pod
	if w.ending && before.DeletionGracePeriodSeconds != nil && pod.DeletionGracePeriodSeconds != nil &&
		*pod.DeletionGracePeriodSeconds < *before.DeletionGracePeriodSeconds {
		w.cut()
	}
	if w.ended && pod.DeletionTimestamp != nil {
		w.out.remove()
	}
}

// Die plays a node that loses its power: its pods are off the network without a word, its
// processes end, and nobody hears of it.
func (k *Kubelet) Die() error {
	k.dead.Store(true)
	return k.each(func(w *worker) error {
		for _, c := range w.containers {
			if c.process != nil {
				defer c.process.signal(9) // once nothing of its end can be heard
			}
		}
		if w.network == nil {
			return nil
		}
		return w.network.Cut(true)
	})
}

// Revive puts the power back: the pods that are still wanted are started again by their restart policy.
func (k *Kubelet) Revive() error {
	k.dead.Store(false)
	return k.each(func(w *worker) error {
		w.out.poke()
		if w.network == nil {
			return nil
		}
		return w.network.Cut(false)
	})
}

// Runs gives the pods that it runs, known to the API or not.
func (k *Kubelet) Runs() []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.workers))
}

// each has every worker call a function.
func (k *Kubelet) each(f func(*worker) error) error {
	k.mu.Lock()
	workers := slices.Collect(maps.Values(k.workers))
	k.mu.Unlock()
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.ask(func() error { return f(w) }))
	}
	return errors.Join(errs...)
}
