// Package drain decides whether an endpoint is drained: whether no proxy can
// send it a request any more, as far as proxies have said what they hold.
//
// It is pure: no goroutine, clock or I/O. Its parts:
//
//	History   which clusters hold an endpoint, or held it, and since which
//	          generation no form of them does
//	Places    which endpoints a pod has or had, by its EndpointSlices, and how it ended
//	List      which endpoints one form of a resource names; Readings keeps that,
//	          so that each form is read once
//	Decide    from those and from what each stream may hold: drained, or who
//	          and what it waits for
//	Settler   how long it has been over already: an answer that it is comes a
//	          little later, for what is on its way
//
// History and Places are fed by the one goroutine that translates and
// publishes; a mutex, held for map operations only, lets others read them.
//
// An endpoint counts as in use wherever the opposite is not known:
//
//	the newest form lists it HEALTHY                    listed, last_endpoint
//	a stream holds, or may hold, a form that did        pending, stale, rejected
//	so does one that ended less than 30 s ago           disconnected; but not where Kubernetes
//	                                                    says that its pod ended, too
//	a stream may hold what is older than the History    pending, stale, rejected
//	the server cannot know its nodes yet                starting, not_synced
//	the pod, or a stream, is not known                  pod_unknown, unanswered
//	it is in use no more, but only since a moment       settling
package drain
