// Package model compares random histories with a naive oracle: services and
// endpoints that change, clients of both protocols that behave well and badly,
// and faults of the network and of the server, hours of it, through the real
// control plane and real gRPC streams in bubble time. What the clients truly
// hold, and what /audit says of them, must be what package oracle says.
//
// pkg/xds/ads has a model of its own: of the core alone, one stream, fuzzed
// with what no client of a whole server can bring about (a store that forgets,
// a transport that takes nothing). This one sees only what an operator sees.
package model
