package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// retryTime is the pause after something that may work later.
const retryTime = time.Second

// worker runs one pod. Its fields belong to run's goroutine, but for those that say otherwise.
type worker struct {
	node *Kubelet
	name types.NamespacedName
	log  hclog.Logger
	// dir is the pod's directory; everything below it is the pod's.
	dir string
	// v4 and v6 are its addresses, given back at its end.
	v4, v6 netip.Addr
	// latest is the pod as it was seen last.
	latest atomic.Pointer[v1.Pod]
	// events are functions for run's goroutine.
	events chan func()
	// done is closed when the worker is.
	done chan struct{}
	wg   sync.WaitGroup
	out  *reporter

	pod        *v1.Pod
	network    *sandbox.Pod
	containers []*container
	etcDir     string
	began      time.Time
	// renew is when tokens want to be renewed, and again when something is to be tried again.
	renew, again time.Time
	// stopProbes ends the startup and liveness probes, stopReadiness the readiness probes.
	stopProbes, stopReadiness context.CancelFunc
	probing, readying         context.Context //nolint:containedctx // the two lives of probes
	// ending: the pod is going. removed: its object is gone. cut shortens the grace.
	ending, removed, ended bool
	cut                    context.CancelFunc
	cutContext             context.Context //nolint:containedctx // ended by a shorter grace period
}

func (k *Kubelet) newWorker(ctx context.Context, pod *v1.Pod) *worker {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	w := &worker{
		node: k, name: name, log: k.log.With("pod", name.String()),
		dir:    filepath.Join(k.config.Dir, string(pod.UID)),
		events: make(chan func()), done: make(chan struct{}), out: newReporter(k, pod),
		pod: pod, containers: containersOf(pod), began: time.Now(),
	}
	w.latest.Store(pod)
	w.probing, w.stopProbes = context.WithCancel(ctx)
	w.readying, w.stopReadiness = context.WithCancel(ctx)
	w.cutContext, w.cut = context.WithCancel(context.WithoutCancel(ctx))
	return w
}

// do has run's goroutine call a function. It is lost when the worker is done.
func (w *worker) do(f func()) {
	select {
	case w.events <- f:
	case <-w.done:
	}
}

// ask has run's goroutine call a function, and waits for what it gives; nil when the worker is done.
func (w *worker) ask(f func() error) error {
	result := make(chan error, 1)
	w.do(func() { result <- f() })
	select {
	case err := <-result:
		return err
	case <-w.done:
		return nil
	}
}

func (w *worker) trace(c *container, what, detail string) {
	e := Event{Pod: w.name, What: what, Detail: detail}
	if c != nil {
		e.Container = c.spec.Name
	}
	w.node.Trace.add(e)
}

// run runs the pod until it is gone, or ctx ends, which kills it.
func (w *worker) run(ctx context.Context) {
	reporting, stopReporting := context.WithCancel(ctx)
	w.wg.Go(func() { w.out.run(reporting) })
	for ctx.Err() == nil {
		w.step(ctx)
		if w.ended && w.removed {
			break
		}
		timer := time.NewTimer(w.wait())
		select {
		case f := <-w.events:
			f()
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	w.close()
	stopReporting()
	close(w.done) // so that nobody waits for an event to be taken
	w.wg.Wait()
}

// wait is until when nothing is to be done.
func (w *worker) wait() time.Duration {
	d := time.Hour
	for _, t := range []time.Time{w.again, w.renew} {
		if !t.IsZero() {
			d = min(d, max(0, time.Until(t)))
		}
	}
	return d
}

// close ends everything that is left of the pod.
func (w *worker) close() {
	w.stopProbes()
	w.stopReadiness()
	w.cut()
	for _, c := range w.containers {
		if c.process != nil {
			c.process.signal(9)
			<-c.process.ended
		}
	}
	if w.network != nil {
		if err := w.network.Close(); err != nil {
			w.log.Error("network not closed", "err", err)
		}
		w.node.addresses.free(w.v4)
	}
}

// step does what is to be done now.
func (w *worker) step(ctx context.Context) {
	if w.ended || w.node.dead.Load() {
		return
	}
	if w.pod.DeletionTimestamp != nil || w.removed {
		w.end(ctx)
		return
	}
	if err := w.prepare(ctx); err != nil {
		w.log.Warn("pod cannot be started yet", "err", err)
		w.again = time.Now().Add(retryTime)
		return
	}
	p := next(w.pod.Spec.RestartPolicy, w.containers, time.Now())
	w.again = p.again
	if p.over {
		w.end(ctx)
		return
	}
	for _, c := range p.start {
		w.start(ctx, c)
	}
	w.report()
}

// prepare gives the pod its network and its volumes.
func (w *worker) prepare(ctx context.Context) error {
	if w.network == nil {
		var err error
		w.v4, w.v6 = w.node.addresses.take()
		ip := w.v4.As4()
		name := fmt.Sprintf("pod%d-%d", ip[2], ip[3])
		if w.network, err = w.node.config.Network.Add(name, w.v4, w.v6); err != nil {
			w.node.addresses.free(w.v4)
			return err
		}
	}
	if w.etcDir == "" {
		var err error
		if w.etcDir, err = w.etc(); err != nil {
			return err
		}
	}
	if w.renew.IsZero() || !time.Now().Before(w.renew) {
		renew, err := w.volumes(ctx)
		if err != nil {
			return err
		}
		if renew.IsZero() {
			renew = time.Now().Add(24 * time.Hour)
		}
		w.renew = renew
	}
	return nil
}

// start starts a container, or writes down why not.
func (w *worker) start(ctx context.Context, c *container) {
	p, err := w.launch(ctx, c)
	if err != nil {
		c.failed = err.Error()
		w.log.Warn("container not started", "container", c.spec.Name, "err", err)
		c.notBefore = time.Now().Add(retryTime)
		w.again = c.notBefore
		return
	}
	c.runs++
	run := c.runs
	c.process, c.failed = p, ""
	c.started, c.ready = c.spec.StartupProbe == nil, c.spec.ReadinessProbe == nil
	w.wg.Go(func() {
		<-p.ended
		w.do(func() { w.exited(c, run) })
	})
	if l := c.spec.Lifecycle; l != nil && l.PostStart != nil {
		if _, err := w.target(c).hook(ctx, l.PostStart); err != nil {
			w.log.Warn("postStart failed", "container", c.spec.Name, "err", err)
			p.signal(9)
		}
	}
	w.probes(c, run)
}

func (w *worker) launch(ctx context.Context, c *container) (*process, error) {
	image, ok := w.node.config.Image(c.spec.Image)
	if !ok {
		return nil, fmt.Errorf("image %s: not known", c.spec.Image)
	}
	env, args, err := w.environment(ctx, c.spec, image)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errors.New("no command")
	}
	e := w.entry(c, image)
	e.Env, e.Args = env, args
	out, err := logFile(w.dir, c.spec.Name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own
	return run(w.node.config.Enter, e, w.network.Namespace, out, func(what, detail string) { w.trace(c, what, detail) })
}

// entry gives the container's root and user.
func (w *worker) entry(c *container, image Image) entry {
	e := entry{Root: filepath.Join(w.dir, "root"), Dir: "/"}
	if c.spec.WorkingDir != "" {
		e.Dir = c.spec.WorkingDir
	}
	if othersMapped {
		e.User, e.Group = user(w.latest.Load(), c.spec)
	}
	e.Mounts = []mount{{From: w.etcDir, To: "/etc", ReadOnly: true}, {From: image.Dir, To: image.Mount, ReadOnly: true}}
	for _, m := range c.spec.VolumeMounts {
		e.Mounts = append(e.Mounts, mount{From: filepath.Join(w.volumeDir(m.Name), m.SubPath), To: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return e
}

// target is the container for its hooks and probes.
func (w *worker) target(c *container) target {
	return target{spec: c.spec, ip: w.v4.String(), exec: func(ctx context.Context, command []string) (int32, error) {
		image, ok := w.node.config.Image(c.spec.Image)
		if !ok {
			return 0, errNotRunning
		}
		env, _, err := w.environment(ctx, c.spec, image)
		if err != nil {
			return 0, err
		}
		e := w.entry(c, image)
		e.Env, e.Args = env, command
		out, err := logFile(w.dir, c.spec.Name)
		if err != nil {
			return 0, err
		}
		defer func() { _ = out.Close() }()
		p, err := run(w.node.config.Enter, e, w.network.Namespace, out, func(string, string) {})
		if err != nil {
			return 0, err
		}
		select {
		case <-p.ended:
			return p.how.ExitCode, nil
		case <-ctx.Done():
			p.signal(9)
			<-p.ended
			return 0, ctx.Err()
		}
	}}
}

// probes starts the probes of a run of a container.
func (w *worker) probes(c *container, run int) {
	t := w.target(c)
	loop := func(ctx context.Context, k kind, spec *v1.Probe) {
		if spec == nil {
			return
		}
		p := c.process
		ctx, cancel := context.WithCancel(ctx)
		w.wg.Go(func() {
			defer cancel()
			probeLoop(ctx, t, spec, func(good bool, why error) { w.do(func() { w.probed(c, run, k, good, why) }) })
		})
		w.wg.Go(func() {
			defer cancel()
			select {
			case <-p.ended:
			case <-ctx.Done():
			}
		})
	}
	if !c.started {
		loop(w.probing, startup, c.spec.StartupProbe)
		return
	}
	loop(w.readying, readiness, c.spec.ReadinessProbe)
	loop(w.probing, liveness, c.spec.LivenessProbe)
}

// probed takes a verdict of a probe.
func (w *worker) probed(c *container, run int, k kind, good bool, why error) {
	if c.runs != run || c.process == nil {
		return
	}
	switch k {
	case startup:
		if good && !c.started {
			c.started = true
			w.probes(c, run)
		}
	case readiness:
		if c.ready != good {
			c.ready = good
			if good {
				w.trace(c, "ready", "")
			} else {
				w.trace(c, "unready", why.Error())
			}
			if w.ending {
				w.reportReadiness()
			}
		}
		return
	case liveness:
	}
	if !good && !w.ending {
		w.log.Warn("container is ended", "container", c.spec.Name, "err", why)
		p := c.process
		w.wg.Go(func() { p.stop(w.grace()) })
	}
}

// exited takes the end of a run.
func (w *worker) exited(c *container, run int) {
	if c.runs != run || c.process == nil || w.ending {
		return // when the pod ends, all ends are looked at together
	}
	w.noteEnd(c)
	if c.ended.ExitCode == 0 && c.role == once {
		return
	}
	if c.ended.FinishedAt.Sub(c.ended.StartedAt.Time) > 20*w.node.config.BackOff {
		c.crashes = 0
	}
	c.crashes++
	c.notBefore = time.Now().Add(backoff(w.node.config.BackOff, c.crashes))
}

// noteEnd writes down how a container's process has ended.
func (w *worker) noteEnd(c *container) {
	c.ended, c.process = c.process.how, nil
	c.ended.ContainerID = c.id()
	c.started, c.ready = false, false
}

func (w *worker) grace() time.Duration {
	if g := w.pod.DeletionGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	if g := w.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return 30 * time.Second
}

// report writes the status, if anything of it has changed.
func (w *worker) report() {
	s := statusOf(w.pod, w.containers, w.ended, time.Now())
	w.complete(&s)
	w.out.set(s)
}

// reportReadiness writes what probes say of a pod that is going; all else stays as it was written last.
func (w *worker) reportReadiness() {
	s := *w.out.last().DeepCopy()
	fresh := statusOf(w.pod, w.containers, false, time.Now())
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Ready = fresh.ContainerStatuses[i].Ready
	}
	for i := range s.InitContainerStatuses {
		s.InitContainerStatuses[i].Ready = fresh.InitContainerStatuses[i].Ready
	}
	s.Conditions = fresh.Conditions
	w.out.set(s)
}

// complete adds addresses and times.
func (w *worker) complete(s *v1.PodStatus) {
	start := metav1.NewTime(w.began).Rfc3339Copy()
	s.StartTime = &start
	s.HostIP = w.node.config.Address.String()
	s.HostIPs = []v1.HostIP{{IP: s.HostIP}}
	if w.v4.IsValid() {
		s.PodIP = w.v4.String()
		s.PodIPs = []v1.PodIP{{IP: w.v4.String()}, {IP: w.v6.String()}}
	}
}

// makeDir makes the pod's directory.
func (w *worker) makeDir() error { return os.MkdirAll(filepath.Join(w.dir, "root"), 0o755) } //nolint:gosec // containers have users of their own
