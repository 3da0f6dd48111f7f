package faults

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// callers is how many requests of a load can be under way at once.
const callers = 8

// period is the pause between two requests of a load.
const period = 20 * time.Millisecond

// outcome is what became of one request.
type outcome struct {
	began, ended time.Time
	// answer is the name of the instance that answered; "" where the request failed.
	answer, failure string
}

// caller sends one request for a service, never twice, and gives the name of
// the instance that answered. It is for one goroutine.
type caller interface {
	call(service string) (string, error)
	close()
}

// load requests echo at a steady rate, over a few callers, and never repeats
// a request: whatever goes wrong is a failure.
type load struct {
	stop func()

	mu       sync.Mutex // guards outcomes
	outcomes []outcome  // in the order in which they ended
}

// startLoad begins one, until stop or the end of the test.
func startLoad(t testing.TB, dial func() caller) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{}
	var wg sync.WaitGroup
	due := make(chan struct{}) // nobody waits at a full pace: no request is made up for later
	wg.Go(func() { pace(ctx, due) })
	for range callers {
		wg.Go(func() { l.work(due, dial()) })
	}
	l.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(l.stop)
	return l
}

func pace(ctx context.Context, due chan<- struct{}) {
	defer close(due)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case due <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

func (l *load) work(due <-chan struct{}, c caller) {
	defer c.close()
	for range due {
		o := outcome{began: time.Now()}
		answer, err := c.call(echo)
		o.ended = time.Now()
		if o.answer = answer; err != nil {
			o.answer, o.failure = "", err.Error()
		}
		l.mu.Lock()
		l.outcomes = append(l.outcomes, o)
		l.mu.Unlock()
	}
}

// since gives the outcomes of requests that ended at or after a time.
func (l *load) since(from time.Time) []outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.outcomes, from, func(o outcome, t time.Time) int { return o.ended.Compare(t) })
	return slices.Clone(l.outcomes[i:])
}
