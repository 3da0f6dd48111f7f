package kubelet

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reporter writes one pod's status to the API, the newest only and one after the
// other, and deletes the pod once its last status is written. The pod's worker
// gives it statuses; run writes them.
type reporter struct {
	node *Kubelet
	name types.NamespacedName
	uid  types.UID
	wake chan struct{}

	mu sync.Mutex // guards what follows
	// wanted is what the worker said last, written what the API has.
	wanted, written v1.PodStatus
	removing, gone  bool
	// told: the trace has heard of the deletion.
	told bool
}

func newReporter(k *Kubelet, pod *v1.Pod) *reporter {
	return &reporter{
		node: k, name: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID,
		wake: make(chan struct{}, 1),
	}
}

func (r *reporter) set(s v1.PodStatus) {
	r.mu.Lock()
	r.wanted = s
	r.mu.Unlock()
	r.poke()
}

// last gives what was set last.
func (r *reporter) last() *v1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted.DeepCopy()
}

// remove has the pod deleted after its status is written.
func (r *reporter) remove() {
	r.mu.Lock()
	r.removing = true
	r.mu.Unlock()
	r.poke()
}

func (r *reporter) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends. What fails is tried again.
func (r *reporter) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(time.Hour)
		if err := r.write(ctx); err != nil {
			r.node.log.Debug("status not written", "pod", r.name.String(), "err", err)
			timer.Reset(retryTime / 2)
		}
	}
}

// requestTime bounds one request to the API.
const requestTime = 10 * time.Second

func (r *reporter) write(ctx context.Context) error {
	if r.node.dead.Load() {
		return errDead
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r.mu.Lock()
	wanted, written, removing := r.wanted, r.written, r.removing && !r.gone
	r.mu.Unlock()
	pods := r.node.client.CoreV1().Pods(r.name.Namespace)
	if !equality.Semantic.DeepEqual(wanted, written) {
		// As kubelet does: conditions are merged by type, and those of others stay.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.uid}, "status": wanted})
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, r.name.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !gone(err) {
			return err
		}
		r.mu.Lock()
		r.written = wanted
		r.mu.Unlock()
	}
	if !removing {
		return nil
	}
	r.tellDeletion()
	none := int64(0)
	err := pods.Delete(ctx, r.name.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &r.uid},
	})
	if err != nil && !gone(err) {
		return err
	}
	r.mu.Lock()
	r.gone = true
	r.mu.Unlock()
	return nil
}

// tellDeletion is called before it is asked for: who sees the pod gone finds it in the trace.
func (r *reporter) tellDeletion() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told {
		r.told = true
		r.node.Trace.add(Event{Pod: r.name, What: "deleted"})
	}
}

// gone tells whether the pod is not there any more, or another one is.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
