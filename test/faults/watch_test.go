package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// pollPeriod is the pause between two questions to the audit.
const pollPeriod = 200 * time.Millisecond

// What the audit can say of a node beside the states.
const (
	silent  ack.State = "no answer"
	unknown ack.State = "unknown"
	// lagging: fresh by the store, but the audit says that the store cannot be trusted.
	lagging ack.State = "source lags"
)

// sample is what the audit said once.
type sample struct {
	at     time.Time
	states map[mesh.NodeID]ack.State // nil: no answer
}

// watch polls the audit.
type watch struct {
	mu      sync.Mutex // guards samples
	samples []sample
}

// startWatch begins to poll, until the test ends.
func startWatch(t testing.TB, admin string) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{}
	var wg sync.WaitGroup
	wg.Go(func() { w.run(ctx, admin) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

func (w *watch) run(ctx context.Context, admin string) {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s := sample{at: time.Now()}
		var a ack.Audit
		if _, err := ask(ctx, admin, "/audit", &a); err == nil {
			s.states = make(map[mesh.NodeID]ack.State)
			for _, n := range a.Nodes {
				s.states[n.ID] = n.State
				if n.State == ack.Fresh && (!a.Server.Synced || a.Server.SourceLagSeconds > 0) {
					s.states[n.ID] = lagging
				}
			}
		}
		w.mu.Lock()
		w.samples = append(w.samples, s)
		w.mu.Unlock()
	}
}

// of gives what was said of a node since a time.
func (w *watch) of(node string, from time.Time) (at []time.Time, states []ack.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.samples {
		if s.at.Before(from) {
			continue
		}
		state, ok := s.states[mesh.NodeID(node)]
		switch {
		case s.states == nil:
			state = silent
		case !ok:
			state = unknown
		}
		at, states = append(at, s.at), append(states, state)
	}
	return at, states
}

// story tells what was said of a node since a time: each state with the second from
// which it was said.
func (w *watch) story(node string, from time.Time) string {
	at, states := w.of(node, from)
	var b strings.Builder
	for i, state := range states {
		if i > 0 && states[i-1] == state {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s", state)
		if i > 0 {
			fmt.Fprintf(&b, " from %.1f s", at[i].Sub(from).Seconds())
		}
	}
	return b.String()
}
