package limit

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// lookEvery is how often the memory is looked at: what one round of requests
// can allocate in that time has to fit between the limit and what the kernel allows.
const lookEvery = 50 * time.Millisecond

// Memory watches how much the process holds. The zero value watches nothing.
type Memory struct {
	// Limit in bytes is where new work is shed; 0 for never.
	Limit uint64
	over  atomic.Bool
}

// Over tells whether new work is to be shed.
func (m *Memory) Over() bool { return m.over.Load() }

// Run looks until ctx ends. While it runs, the collector works against the limit (GOMEMLIMIT).
func (m *Memory) Run(ctx context.Context) {
	if m.Limit == 0 {
		return
	}
	before := debug.SetMemoryLimit(int64(m.Limit))
	defer debug.SetMemoryLimit(before)
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		metrics.Read(samples)
		held := samples[0].Value.Uint64() - samples[1].Value.Uint64()
		// Back under, with a margin, before work is taken again.
		m.over.Store(held > m.Limit || m.over.Load() && held > m.Limit/10*9)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			m.over.Store(false)
			return
		}
	}
}

// DefaultMemory is four fifths of what the control group allows (cgroup v2,
// memory.max), and 0 where nothing is said: the rest is for the kernel's socket
// buffers and what is allocated before anybody looks.
func DefaultMemory() uint64 {
	b, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n / 5 * 4
}
