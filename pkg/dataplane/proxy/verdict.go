package proxy

import (
	"slices"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// verdict is what follows from a failed attempt.
type verdict uint8

const (
	// giveUp: the failure is the client's answer.
	giveUp verdict = iota
	// atOnce: another endpoint, at once.
	atOnce
	// paced: another one after a pause, if the budget allows.
	paced
)

// judge decides what follows from a failure at key; again tells whether the request can be sent again at all.
func (a *attempts) judge(key mesh.EndpointKey, e *upstream.Error, again bool) verdict {
	if !again {
		return giveUp
	}
	a.last = e
	a.label = string(e.Reason)
	switch {
	case a.dialling:
		return a.redial(e)
	case e.Unsent || e.Reused && idempotent(a.method):
		// Nothing has worked on it, or most likely nothing and it would do no harm: not a matter of policy.
		if a.sends >= max(maxSends, 1+a.policy.Attempts) {
			return giveUp
		}
		if !e.Shed() {
			if e.Reused {
				// The endpoint is as good as any; only the connection was old.
				a.tried = slices.DeleteFunc(a.tried, func(k mesh.EndpointKey) bool { return k == key })
			}
			return atOnce
		}
	default:
		if a.repeats >= a.policy.Attempts || !a.allowed(e) {
			return giveUp
		}
		a.repeats++
		a.sent, a.broke = append(a.sent, key), e
	}
	return paced
}

// around begins the next round of all endpoints, in which the request is patient if one of them was full.
func (a *attempts) around() {
	a.tried, a.patient = slices.Clone(a.sent), a.full
	if a.patient {
		// To wait is no retry.
		a.label = ""
	}
}

// redial decides after a dial that failed so.
func (a *attempts) redial(e *upstream.Error) verdict {
	switch r := e.Reason; {
	case r == upstream.StreamLimit && a.patient || !a.elsewhere(r):
		// The queue is full too.
		return giveUp
	case r == upstream.StreamLimit:
		a.full = true
	case r == upstream.EndpointRemoved:
		// Others may have room.
		a.patient = false
	default:
	}
	if a.dials < maxDials {
		return atOnce
	}
	if !a.full || a.patient {
		return giveUp
	}
	// There are more than it may go to: it waits at the next one.
	a.dials = 0
	a.around()
	return atOnce
}

// elsewhere tells whether another endpoint may do better after a dial that
// failed so. Over HTTP/2 it may have a connection with room where no further one may be had.
func (a *attempts) elsewhere(r upstream.Reason) bool {
	if r == upstream.BreakerConnections {
		return a.cluster.Config().HTTP2
	}
	return r.Dial() || r == upstream.EndpointRemoved || r == upstream.ProtocolError || r == upstream.StreamLimit
}
