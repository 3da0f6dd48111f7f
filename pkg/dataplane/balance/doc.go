// Package balance picks an endpoint. A Picker is immutable: endpoints makes a
// new one whenever the endpoints, their health or their ejections change, and
// requests share it. The only thing that moves is Load, one for each endpoint,
// which outlives pickers; it has a small mutex of its own.
//
// Nothing here does I/O, starts a goroutine or knows of connections. Moments
// are passed in, so that a simulation can run an hour in a loop.
package balance
