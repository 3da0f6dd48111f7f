//go:build linux

package main

import (
	"context"
	"slices"
)

// protocol is what both sides of a proxy speak.
type protocol string

const (
	http1  protocol = "http"
	h2c    protocol = "kubernetes.io/h2c"
	grpc   protocol = "grpc"
	opaque protocol = "tcp"
)

// http2: by prior knowledge.
func (p protocol) http2() bool { return p == h2c || p == grpc }

// workload is a kind of traffic.
type workload struct {
	name   string
	speaks protocol
	// about says what is sent, unit what counts, in multiples of per.
	about, unit string
	per         float64
	// connections are those of clients where none are asked for.
	connections int
	// paced: the load does not saturate the proxy, and what counts is latency.
	paced bool
	// endpoints starts s.Endpoints servers, and gives their addresses and what stops them.
	endpoints func(s setup) (addresses []string, stop func(), err error)
	// load keeps s.Connections busy until ctx ends, and gives what was done in that time.
	// It is nil where idle connections are to be weighed.
	load func(ctx context.Context, s setup, address string) (outcome, error)
	// one makes an exchanger, for what is paced or idle.
	one func(s setup, address string) (exchanger, error)
}

// outcome is what the load of one round saw.
type outcome struct {
	// done is requests, messages or bytes.
	done    int
	latency histogram
}

var workloads = []workload{
	{
		name: "http1", speaks: http1, about: "HTTP/1.1 GET, saturated", unit: "request", per: 1, connections: 64,
		endpoints: http1Endpoints, load: http1Load,
	},
	{
		name: "http2", speaks: h2c, about: "HTTP/2 GET, saturated", unit: "request", per: 1, connections: 4,
		endpoints: http2Endpoints(http2Get), load: http2Load(http2Get),
	},
	{
		name: "grpc", speaks: grpc, about: "gRPC unary, saturated", unit: "call", per: 1, connections: 4,
		endpoints: http2Endpoints(grpcUnary), load: http2Load(grpcUnary),
	},
	{
		name: "grpc-stream", speaks: grpc, about: "gRPC messages to and fro on long streams, saturated", unit: "message", per: 1, connections: 4,
		endpoints: http2Endpoints(grpcStream), load: http2Load(grpcStream),
	},
	{
		name: "tcp", speaks: opaque, about: "TCP, 64 bytes to and fro, saturated", unit: "message", per: 1, connections: 64,
		endpoints: tcpEndpoints, load: tcpLoad,
	},
	{
		name: "tcp-bulk", speaks: opaque, about: "TCP, one way, saturated", unit: "GB", per: 1e9, connections: 4,
		endpoints: bulkEndpoints, load: bulkLoad,
	},
	{
		name: "latency", speaks: http1, about: "HTTP/1.1 GET at a fixed rate", unit: "request", per: 1, connections: 64, paced: true,
		endpoints: http1Endpoints, load: pacedLoad(http1Exchanger), one: http1Exchanger,
	},
	{
		name: "latency-grpc", speaks: grpc, about: "gRPC unary at a fixed rate", unit: "call", per: 1, connections: 64, paced: true,
		endpoints: http2Endpoints(grpcUnary), load: pacedLoad(grpcExchanger), one: grpcExchanger,
	},
	{
		name: "idle", speaks: http1, about: "HTTP/1.1 connections that are idle after one request", unit: "connection", per: 1, connections: 1000,
		endpoints: http1Endpoints, one: http1Exchanger,
	},
	{
		name: "idle-grpc", speaks: grpc, about: "HTTP/2 connections that are idle after one call", unit: "connection", per: 1, connections: 1000,
		endpoints: http2Endpoints(grpcUnary), one: grpcExchanger,
	},
}

func workloadNames() (all []string) {
	for _, w := range workloads {
		all = append(all, w.name)
	}
	return all
}

// named gives a workload; false if there is none of that name.
func named(name string) (workload, bool) {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		return workload{}, false
	}
	return workloads[i], true
}

// speaks is what the setup's workload speaks.
func (s setup) speaks() protocol {
	w, _ := named(s.Workload) // whoever made the setup has looked
	return w.speaks
}
