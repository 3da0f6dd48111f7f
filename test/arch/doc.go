// Package arch keeps the import rules of docs/ARCHITECTURE.md: its test loads
// the import graph with `go list` and judges it by the table in rules.go.
package arch
