//go:build !linux || !amd64

package faults

// clockFaults: how to move a process's clock is known for Linux on amd64 only.
var clockFaults []fault
