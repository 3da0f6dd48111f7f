// Package endpoints is what the data plane knows of the endpoints of each
// cluster, by address, port and identity: whether they are ejected or fail a
// health check, what is on them, their connections, and the cluster's limits.
// docs/dataplane.md says what people who run it need of this.
//
// # An endpoint that cannot be reached
//
//	         dial fails                    back-off over, somebody asks
//	usable ─────────────▶ ejected ───────────────────────────▶ on trial
//	   ▲                     ▲  back-off doubled, 100 ms … 30 s    │
//	   │                     └──────────── trial dial fails ───────┤
//	   └────────────────────────────────── trial dial succeeds ────┘
//
// While no endpoint is usable, the back-off is at most 1 s. An endpoint whose
// connection broke under a request is dialled too, whether or not anybody asks.
// A trial is one dial, alone, in a goroutine of its own: while others are
// usable no request waits for it.
//
// # An endpoint that answers badly
//
//	         5xx in a row, success rate        its time is over, a request comes
//	trusted ────────────────────────────▶ doubted ─────────────────────▶ on trial
//	   ▲                                     ▲  base × times, up to the maximum  │
//	   │                                     └────────── a bad answer ───────────┤
//	   └──────────────────────────────────────────────── a good answer ──────────┘
//
// The trial is that one request; until its answer has come nobody else is sent
// there. A doubted endpoint is used when nothing else is usable. The two
// machines of an endpoint are independent of each other, and of its health
// checks, which package health runs.
//
// # A cluster without a usable endpoint
//
//	         last one gone           fail-fast time over
//	serving ───────────────▶ waiting ────────────────────▶ failing fast
//	   ▲                        │                               │
//	   └── one is usable ───────┴───────────────────────────────┘
//
// Waiting requests queue; those that come when it is failing fast fail at once.
// In both states a goroutine begins trials as they fall due, until nobody has
// asked for 10 s. After that the request which asks first begins a trial and
// waits for its result, up to the fail-fast time.
//
// # Load that is too much
//
// Breakers are no states of a cluster but one gauge for each limit, independent of the above:
//
//	closed ── active reaches the limit ──▶ open: what comes is shed at once
//	   ▲                                     │
//	   └──────────── something ends ─────────┘
//
// Over HTTP/2 a request that finds the breaker on connections open may wait for a stream (Request.Patient): in
// the http2.Pool of its endpoint, counted by the breaker on pending requests. When a connection of
// the cluster closes, or its limit may have risen, the pools are woken (Cluster.wake).
//
// # Ownership
//
// Set is the discovery.Applier: it takes clusters before they are acknowledged,
// keeps the state of endpoints that did not change and retires the others.
// Apply and Remove come from one goroutine; everything else may be called from
// any. Readers take a picker through one atomic pointer; the state of endpoints
// stands under a mutex of the cluster. Under it nothing is called but the pure
// cores (ejection, opinion, tally, availability, package balance) and the start of goroutines,
// which Close ends and waits for. A request takes that mutex only when
// something goes wrong, or is due.
package endpoints
