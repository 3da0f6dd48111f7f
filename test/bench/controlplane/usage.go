package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// memory is what a process uses, in bytes, after a forced collection that
// gave free pages back.
type memory struct {
	// InUse is heap and stacks in use, as the Go runtime counts them.
	InUse uint64 `json:"inUse,omitempty"`
	// Resident is the resident set.
	Resident uint64 `json:"resident,omitempty"`
}

func memoryInUse() (memory, error) {
	runtime.GC() // a second collection frees what the first one finalised, and what pools kept
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return memory{}, err
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return memory{}, fmt.Errorf("parse /proc/self/statm: %w", err)
	}
	return memory{InUse: m.HeapInuse + m.StackInuse, Resident: resident * uint64(os.Getpagesize())}, nil
}

// cpuSeconds is the user and system time of this process so far.
func cpuSeconds() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), nil
}

// quietCPUSeconds is cpuSeconds once the process has used less than 0.5 ms in
// each of three successive 20 ms.
func quietCPUSeconds(ctx context.Context) (float64, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last, err := cpuSeconds()
	for still := 0; still < 3 && err == nil; {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
		var now float64
		if now, err = cpuSeconds(); now-last < 0.0005 {
			still++
		} else {
			still = 0
		}
		last = now
	}
	return last, err
}
