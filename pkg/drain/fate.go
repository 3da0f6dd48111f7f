package drain

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// FateState is what is known of the pod that a proxy runs in.
type FateState string

// The states.
const (
	// FateUnknown: no object that the server knows, or knew lately, is the pod.
	FateUnknown FateState = ""
	// Runs: the pod exists, and nothing says that its containers have ended.
	Runs FateState = "runs"
	// Ended: its phase is Succeeded or Failed: all of its containers have ended, and none will start.
	Ended FateState = "ended"
	// Deleted: the Pod object is gone, which the kubelet lets happen only once the containers have ended.
	Deleted FateState = "deleted"
)

// Fate is what Kubernetes says of a pod.
type Fate struct {
	State FateState
	// At is when the server heard that it ended or was deleted; zero in other states.
	At time.Time
}

// Gone tells whether nothing of the pod runs any more, by what Kubernetes says.
func (f Fate) Gone() bool { return f.State == Ended || f.State == Deleted }

// Fate gives what Kubernetes says of a pod. A pod that has come again under its
// name is the newest one. What is gone is remembered for 10 minutes.
func (p *Places) Fate(pod mesh.Key, now time.Time) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.fates[pod]; ok && now.Sub(f.At) < keepGone {
		return f
	}
	if p.pods[pod] != nil {
		return Fate{State: Runs}
	}
	return Fate{}
}

// UID gives the UID of a pod that exists; "" for one that does not, or has none.
func (p *Places) UID(pod mesh.Key) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.pods[pod]; o != nil {
		return o.UID
	}
	return ""
}

// live takes a pod's form. Guarded by mu.
func (p *Places) live(o *mesh.Pod, now time.Time) {
	if !o.Ended {
		delete(p.fates, o.Key)
		return
	}
	if p.fates[o.Key].State != Ended {
		p.end(o.Key, Fate{Ended, now}, now)
	}
}

// dead takes the deletion of a pod that was held. A server that went back to an
// older state deletes pods that run. Guarded by mu.
func (p *Places) dead(held *mesh.Pod, m mesh.Meta, now time.Time) {
	if m.Rewinds <= held.Rewinds {
		p.end(m.Key, Fate{Deleted, now}, now)
	}
}

// end remembers a fate, and forgets the oldest. Guarded by mu.
func (p *Places) end(pod mesh.Key, f Fate, now time.Time) {
	p.fates[pod] = f
	p.fateOrder = append(p.fateOrder, fateOf{pod, f})
	for len(p.fateOrder) > 0 {
		first := p.fateOrder[0]
		if now.Sub(first.At) < keepGone && len(p.fateOrder) <= maxGone {
			return
		}
		p.fateOrder = p.fateOrder[1:]
		if p.fates[first.pod] == first.Fate {
			delete(p.fates, first.pod)
		}
	}
}

// fateOf is one entry of the order in which fates came.
type fateOf struct {
	pod mesh.Key
	Fate
}
