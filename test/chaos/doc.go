// Package chaos runs a data plane and a control plane for a while under random
// faults, and asks of every failed request: is the reason that it carries the
// one that the faults explain?
//
// Peers are endpoints written by hand, so that what they do wrong is known: each
// deed goes into a ledger, with the request that it was done to, or with the
// time for which it lasted when it concerns connections. A disturber gives
// peers faults and takes them away again, churns the endpoints of services,
// removes services, and restarts the control plane. Clients speak HTTP/1.1,
// HTTP/2, gRPC (unary and streaming), WebSocket and opaque TCP, and never send
// anything twice. Others break off, dawdle, flood and talk nonsense; they are
// not judged, and must not harm anybody.
//
// The run goes in rounds. A round ends with calm: faults are healed, clients go,
// services lose their endpoints. Then every request is judged with its line
// of the access log (judge), and what the process holds is counted:
// goroutines, descriptors and heap must not grow from round to round.
//
// The judge is tested by itself, and in the run: reasons of judged requests are
// changed at random, and the judge must object.
package chaos
