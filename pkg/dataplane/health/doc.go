// Package health checks endpoints actively: it asks one endpoint over HTTP,
// TCP or gRPC at intervals and tells when the answer turns (Envoy, "Active
// health checking", in the form of envoy.config.core.v3.HealthCheck).
//
// State is the pure part: results and thresholds in, turns and waits out.
//
//	           a good result                    Unhealthy bad results in a row,
//	unknown ──────────────────▶ healthy ──────▶ or one that says so itself
//	   │                            ▲                  │
//	   │ a bad result               │                  ▼
//	   └────────────────────────────┼───────────── unhealthy
//	                                └── Healthy good results in a row
//
// Run drives it for one endpoint and is owned by whoever calls it. A result
// says so itself when it is HTTP status 503 or gRPC's NOT_SERVING.
//
// gRPC: grpc.health.v1 Check at each interval, and Watch beside it where the
// server has it, so that a change is known at once; an interval of silence on a
// Watch proves nothing, which is why Check is asked all the same. A server that says
// GOAWAY is watched no more on that connection, so that it can stop.
package health
