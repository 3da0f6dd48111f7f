package kubelet

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// plan is what is to be done about a pod that is not being deleted.
type plan struct {
	start []*container
	// again is when to look again, zero for never.
	again time.Time
	// over: it has come to its end by itself; sidecars are to be ended.
	over bool
}

// next tells what to do. It is pure.
func next(policy v1.RestartPolicy, containers []*container, now time.Time) plan {
	var p plan
	initialized := ran(containers)
	for _, c := range containers {
		switch {
		case c.process != nil:
			if !initialized && (c.role == once || c.role == sidecar && !c.started) {
				return p // the next one waits for this one
			}
		case c.role == once && (c.done() || initialized):
		case c.ended != nil && !c.mayRestart(policy):
			if c.role == once {
				p.over = true // the pod fails
				return p
			}
		default:
			p.add(c, now)
			if !initialized && c.role != main {
				return p
			}
		}
	}
	p.over = over(policy, containers)
	if p.over {
		p.start = nil
	}
	return p
}

func (p *plan) add(c *container, now time.Time) {
	if now.Before(c.notBefore) {
		if p.again.IsZero() || c.notBefore.Before(p.again) {
			p.again = c.notBefore
		}
		return
	}
	p.start = append(p.start, c)
}

// ran tells whether any application container was ever started: then the init containers have done their work.
func ran(containers []*container) bool {
	for _, c := range containers {
		if c.role == main && c.runs > 0 {
			return true
		}
	}
	return false
}

// over tells whether all application containers have ended for good.
func over(policy v1.RestartPolicy, containers []*container) bool {
	for _, c := range containers {
		if c.role == main && (c.process != nil || c.ended == nil || c.mayRestart(policy)) {
			return false
		}
	}
	return true
}

// backoff is how long a container that ended stays down: nothing the first time, then
// base, doubled each time, up to 30 times base (kubelet: 10 s and 300 s).
func backoff(base time.Duration, crashes int) time.Duration {
	if crashes <= 1 {
		return 0
	}
	return min(base<<min(crashes-2, 10), 30*base)
}
