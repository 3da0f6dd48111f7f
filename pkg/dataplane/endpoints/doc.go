// Package endpoints is what the data plane knows of the endpoints of each
// cluster, by address, port and identity: whether they are ejected, what is on
// them, and their connections.
//
//	         dial fails                    back-off over, somebody asks
//	usable ─────────────▶ ejected ───────────────────────────▶ on trial
//	   ▲                     ▲  back-off doubled, 100 ms … 30 s    │
//	   │                     └──────────── trial dial fails ───────┤
//	   └────────────────────────────────── trial dial succeeds ────┘
//
// While no endpoint is usable, the back-off is at most 1 s.
//
// A trial is one dial, alone, in a goroutine of its own: while others are
// usable no request waits for it. With none usable, a request waits until one
// is, or until the cluster has been without for the fail-fast time; after that
// only the request that begins a trial waits, and the others fail at once.
//
// Set is the discovery.Applier: it takes clusters before they are acknowledged,
// keeps the state of endpoints that did not change and retires the others.
// Apply and Remove come from one goroutine; everything else may be called from
// any. Readers take a picker through one atomic pointer; the state of endpoints
// stands under a mutex of the cluster.
package endpoints
