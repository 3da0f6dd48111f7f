// Package lrs serves envoy.service.load_stats.v3.LoadReportingService, for one
// purpose: to hear from proxies which endpoints fail them. Load itself is not
// balanced from here, so reports without failures end here.
//
// The client's first request names its node. It is answered once, with: report
// all clusters, by endpoint, every [Config.Interval]. Each later request is
// turned into one refresh.Report for every cluster in which something failed.
//
// What cannot be true ends the stream with a status that says what was wrong:
// INVALID_ARGUMENT for malformed requests, RESOURCE_EXHAUSTED for too large ones.
// Addresses that are no IP and port are legal in Envoy (pipes), and count without a name.
//
// Concurrency: gRPC gives each stream a goroutine, streams share nothing but the
// sink, which must be safe for concurrent use and must not block.
package lrs
