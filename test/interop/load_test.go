package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// loadPeriod is the pause between two calls of a load.
const loadPeriod = 20 * time.Millisecond

// load calls a service over and over, and never twice for one answer.
type load struct {
	mu       sync.Mutex // guards what follows
	sent     int
	last     string
	failures []string
}

// startLoad calls until the test ends.
func startLoad(t *testing.T, c client, service string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{}
	var wg sync.WaitGroup
	wg.Go(func() { l.run(ctx, c, service) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l
}

func (l *load) run(ctx context.Context, c client, service string) {
	tick := time.NewTicker(loadPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		answer, err := c.call(service)
		l.mu.Lock()
		l.sent++
		l.last = answer
		if err != nil {
			l.last = "error"
			l.failures = append(l.failures, fmt.Sprintf("%s, after %v: %v", began.Format("15:04:05.000"), time.Since(began), err))
		}
		l.mu.Unlock()
	}
}

// answer is the last call's: a backend's name, "error", or "" before the first.
func (l *load) answer() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// took gives how many calls were made since the last time, and which of them failed.
func (l *load) took() (sent int, failures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, failures = l.sent, l.failures
	l.sent, l.failures = 0, nil
	return sent, failures
}

// wantNoFailure fails the test if a call failed since the last time, or none was made.
func (l *load) wantNoFailure(t *testing.T) {
	t.Helper()
	sent, failures := l.took()
	if sent == 0 {
		t.Error("no call was made")
	}
	if len(failures) > 0 {
		t.Errorf("%d of %d calls failed; the first: %s", len(failures), sent, failures[0])
	}
}
