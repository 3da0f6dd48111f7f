package kubelet

import (
	"context"
	"sync"
	"time"
)

// minimumGrace is what a container gets at least between SIGTERM and SIGKILL.
const minimumGrace = 2 * time.Second

// end ends the pod; the package documentation says in which order.
func (w *worker) end(ctx context.Context) {
	if w.ending {
		return
	}
	w.ending = true
	w.again = time.Time{}
	if w.network != nil {
		w.report()
	}
	w.stopProbes()
	grace := w.grace()
	if w.removed {
		grace = 0
	}
	order := newOrder(w.containers)
	var all sync.WaitGroup
	for _, c := range w.containers {
		if c.process == nil {
			order.close(c)
			continue
		}
		all.Go(func() { w.kill(ctx, c, grace, order) })
	}
	w.wg.Go(func() {
		all.Wait()
		w.do(w.finish)
	})
}

// kill ends one container: preStop, its turn, SIGTERM, SIGKILL.
func (w *worker) kill(ctx context.Context, c *container, grace time.Duration, order order) {
	defer order.close(c)
	// A shorter grace period, as a forced deletion's, cuts the waits.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.cutContext, cancel)()
	p := c.process
	if l := c.spec.Lifecycle; l != nil && l.PreStop != nil && grace > 0 {
		began := time.Now()
		w.trace(c, "preStop", "")
		hook, stop := context.WithTimeout(ctx, grace)
		said, err := w.target(c).hook(hook, l.PreStop)
		stop()
		if err != nil {
			w.trace(c, "preStop failed", err.Error())
		} else {
			w.trace(c, "preStop done", said)
		}
		grace -= time.Since(began).Truncate(time.Second)
	}
	if grace > 0 {
		began := time.Now()
		turn, stop := context.WithTimeout(ctx, grace)
		order.wait(turn, c)
		stop()
		grace -= time.Since(began).Truncate(time.Second)
	}
	if ctx.Err() != nil {
		grace = 0
	}
	w.trace(c, "SIGTERM", "")
	p.stop(max(grace, minimumGrace))
}

// finish is called when all containers have ended.
func (w *worker) finish() {
	w.stopReadiness()
	for _, c := range w.containers {
		if c.process != nil {
			w.noteEnd(c)
		}
	}
	w.ended = true
	w.report()
	if w.pod.DeletionTimestamp != nil && !w.removed {
		w.out.remove()
	}
}

// order tells when it is a container's turn to be ended. It is safe for concurrent use.
type order struct {
	closed map[*container]chan struct{}
	before map[*container][]*container
}

// newOrder: sidecars wait for all application containers and for all sidecars after them.
func newOrder(containers []*container) order {
	o := order{closed: make(map[*container]chan struct{}), before: make(map[*container][]*container)}
	for i, c := range containers {
		o.closed[c] = make(chan struct{})
		if c.role != sidecar {
			continue
		}
		for j, other := range containers {
			if other.role == main || other.role == sidecar && j > i {
				o.before[c] = append(o.before[c], other)
			}
		}
	}
	return o
}

// wait waits until all have ended that a container waits for, or ctx ends.
func (o order) wait(ctx context.Context, c *container) {
	for _, other := range o.before[c] {
		select {
		case <-o.closed[other]:
		case <-ctx.Done():
			return
		}
	}
}

// close says that a container has ended. It is called once for each.
func (o order) close(c *container) { close(o.closed[c]) }
