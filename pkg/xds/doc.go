// Package xds is the gRPC side of the control plane: it runs package ads'
// streams and keeps the register of nodes.
//
// A stream has three goroutines. The handler owns the ads.Stream and is the
// only one to touch it; a receiver and a sender move messages between it and
// the transport, which may block them. The owner never blocks: it has at most
// one response with the sender, and everything that changes meanwhile is in the
// next one. Others (the audit, a refresh) reach a stream by sending its owner a
// function.
//
//	transport ──► receiver ──requests──►┌───────┐──responses──► sender ──► transport
//	             store ──woken─────────►│ owner │
//	  audit, refresh ──functions───────►└───────┘
package xds
