// Package admin is the data plane's own HTTP side, in the manner of Envoy's
// admin interface: /clusters, /ready, /config_dump and the rest, readable by
// people who know those, with what freshmesh adds.
//
// Handlers read immutable pictures and call the few functions of Config; they
// keep no state and may run in any goroutine.
package admin
