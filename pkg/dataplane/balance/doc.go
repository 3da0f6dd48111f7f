// Package balance picks an endpoint. A Picker is immutable: endpoints makes a
// new one whenever the endpoints, their health or their ejections change, and
// requests share it. What moves is Load, one for each endpoint, which outlives
// pickers and has a small mutex of its own, and the position of round robin.
//
// Nothing here does I/O, starts a goroutine or knows of connections. Moments
// are passed in, so that a simulation can run an hour in a loop.
//
// # The choice
//
//	priority and health ──▶ locality ──▶ endpoint
//	   by availability       by weight     by policy
//
// First the load is shared among the priorities as Envoy documents it
// ("Priority levels", "Degraded endpoints"): the healthy part of a priority,
// times the overprovisioning factor, is what it can take; what it cannot take
// goes to the next one, and what all healthy endpoints cannot take goes to the
// degraded ones. DRAINING endpoints count for nothing, not even for the whole of
// which the healthy are a part: an endpoint that leaves is no lost capacity
// (here Envoy counts otherwise). A request that has tried all endpoints there goes on
// to the others in the order healthy before degraded, priority by priority.
//
// Doubted endpoints (their answers were bad) are used only when nothing else is
// usable in the whole cluster. Those that are gone (no connection was had) are
// never picked, and neither are DRAINING ones. UNHEALTHY ones are used in panic
// alone, which is off unless a threshold is given.
//
// # Making one from another
//
// New takes the picker that it replaces and keeps each group of endpoints that
// did not change, with its ring, table or order. A group that changed is made
// anew.
package balance
