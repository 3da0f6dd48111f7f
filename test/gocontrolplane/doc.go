// Package gocontrolplane holds no code, only tests: they pin down how the
// servers and caches of go-control-plane behave, and with that why freshmesh
// uses its protos and constants and neither of those two
// (docs/design/0001-ads-stream-core.md).
//
// They pass while the behaviour is there. One that fails after an upgrade
// says that a reason has gone, not that something of ours is broken.
//
// What a change costs there is measured by test/bench/controlplane.
package gocontrolplane
