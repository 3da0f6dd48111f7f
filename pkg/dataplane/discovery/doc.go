// Package discovery is the data plane's ADS client: it subscribes to the
// clusters that are used, applies what comes before it acknowledges, keeps the
// last good configuration on disk, and asks again when endpoints turn out dead.
//
// The methods that the rest of the data plane uses, on *Client:
//
//	Run(ctx) error                                    owns the stream until ctx ends
//	Cluster(ctx, name) (*Cluster, error)              subscribes if need be, waits for an answer until ctx ends
//	Subscribe(name)                                   the same without waiting; for --listen
//	Count(cluster string, key mesh.EndpointKey, Load) adds to the next load report; never blocks
//	Distrust(cluster)                                 asks again for the cluster and its endpoints and sends the load report now; coalesced, never blocks
//	Reset(cluster)                                    forgets and asks again; "" for all. What is in force stays in force until answered
//	Status() Status                                   an immutable picture for the admin side
//
// # Concurrency
//
// The core (core.go, ask.go, answer.go, watch.go, hosts.go, restore.go) is a state
// machine without clock, goroutine or I/O. Run's goroutine owns it and is the
// only one that calls the Applier. Around it: one goroutine for each of a
// session's receiving, sending and load reporting (session.go, lrs.go), one that
// writes the state file (statefile.go), one for each host name being looked up. They
// tell the owner what happened through one channel; callers leave wishes in an
// inbox that coalesces them by name, and read immutable answers from slots.
//
// # A cluster
//
// Its Cluster resource and its assignment are subscribed together, under the
// cluster's name, until the resource names another assignment (service_name).
// What is in force is replaced only by something complete:
//
//	             both answered            refused: NACK, the old stays
//	pending ───────────────────▶ in force ◀──┐
//	   ▲  │                       │  ▲   └───┘
//	   │  │ "there is none"       │  │ created
//	   │  ▼                       ▼  │
//	   └─ absent ◀────────────────────
//	 stream ends     removed
//
// Only an answer on the present stream makes a cluster absent; the end of a
// stream, and an outage of any length, take nothing out of force. An assignment
// alone that is gone leaves a cluster without endpoints.
//
// # Freshness
//
// Each resource is asked for again within MaxAge, whatever the traffic, and at
// once on Distrust. A request that is not answered within answerTimeout (2 s), and a
// stream that brings nothing within SilenceTimeout, climb a ladder, one rung each
// answerTimeout; any answer to what was asked ends the climb:
//
//	re-subscribe → unsubscribe and subscribe → new connection, no initial versions → the next server
//
// A new connection has as long as a rung, in the first round of all servers, so that one
// that does not answer at all is no longer in the way than one that is silent. With
// nothing to subscribe to, the first request only says who we are: the control plane
// ends streams that do not. Waits between streams are anything up to a ceiling that doubles (full
// jitter), until a message comes that is not refused.
//
// A name that is answered on no rung is asked for ever more rarely and costs the
// others their connection no more; a silent stream is given up for as long as it
// is silent, with back-off. A stream that has not brought anything yet is waited
// for the longer (up to 8 s), the more were given up before it: a control plane
// that is slow to begin must not be kept from it.
package discovery
