package mitm

import (
	"maps"
	"sync"
)

// Kind is what messages are counted by. TypeURL is "" for what is not decoded.
type Kind struct {
	Direction Direction
	TypeURL   string
}

// Stats counts since Listen.
type Stats struct {
	// Connections were accepted, Refused among them reset by Refuse; for
	// DialFailures of them the target could not be reached. Open are relayed now.
	Connections, Refused, DialFailures, Open int
	// Broken connections were ended because of what is not proper HTTP/2.
	Broken int
	// Streams were opened.
	Streams int
	// Pings passed, acknowledgements not counted, by direction.
	Pings [2]int
	// AnsweredPings were answered by the proxy, as it held DATA that the peer's windows did not take.
	AnsweredPings int
	// Messages arrived whole, whatever became of them.
	Messages map[Kind]int
	// Swallowed, Delayed and Duplicated messages; Lost are delayed ones whose stream
	// ended first. Unexamined messages were longer than 16 MiB.
	Swallowed, Delayed, Duplicated, Lost, Unexamined int
	// HeldUpdates counts the WINDOW_UPDATE frames that were withheld for a time.
	HeldUpdates int
}

// tally is a small leaf: its mutex guards all of it.
type tally struct {
	mu       sync.Mutex // guards stats and messages
	stats    Stats
	messages map[Kind]int
}

// add adds to one of the counters of t.stats.
func (t *tally) add(counter *int, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*counter += n
}

func (t *tally) message(m *Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages[Kind{Direction: m.Direction, TypeURL: m.TypeURL}]++
}

// Stats gives the counters of now.
func (p *Proxy) Stats() Stats {
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	s := p.tally.stats
	s.Messages = maps.Clone(p.tally.messages)
	return s
}
