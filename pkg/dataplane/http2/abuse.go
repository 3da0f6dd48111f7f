package http2

import "time"

// Budget is a bucket of tokens. A frame of its kind takes one; a connection
// whose bucket is empty is closed with ENHANCE_YOUR_CALM. Frames that carry
// something (a request, a body) put one in.
type Budget struct {
	// Burst is how many the bucket holds, and at first has in it.
	Burst int
	// PerSecond come back by themselves.
	PerSecond int
}

// Abuse is a kind of what a peer can do to wear us out.
type Abuse uint8

// The kinds, with the default budgets. Envoy and Go have fixed ratios or numbers for most of them (Envoy: 500 early
// resets; 10,000 PING and SETTINGS in the queue; 100 PRIORITY a stream, one empty frame; Go: 10,000 control frames in the queue).
const (
	// RapidReset: a client resets streams that have no answer yet (CVE-2023-44487); 200, 50 a second.
	RapidReset Abuse = iota
	// ContinuationFlood: a header block has too many parts, or too many bytes (CVE-2024-27316); 32 parts, no budget.
	ContinuationFlood
	// SettingsFlood: 100, 10 a second (CVE-2019-9515).
	SettingsFlood
	// PingFlood: 1000, 100 a second (CVE-2019-9512).
	PingFlood
	// EmptyFrames: DATA that neither has nor ends anything; 100, 10 a second (CVE-2019-9518).
	EmptyFrames
	// PriorityFlood: PRIORITY, which does nothing here; 1000, 100 a second (CVE-2019-9513).
	PriorityFlood
	// WindowFlood: WINDOW_UPDATE; 5000, 500 a second (CVE-2019-9517 turned round).
	WindowFlood
	// UnknownFrames: frames of unknown types; 1000, 100 a second.
	UnknownFrames
	// Misbehaviour: errors of single streams (malformed lists, more streams than allowed, frames on closed ones); 200, 20 a second.
	Misbehaviour
	// Stalled: the connection's window stayed zero, or its socket was not read; no budget.
	Stalled
	// OutputFlood: more was caused to be written than the peer reads; 8 MiB, no budget.
	OutputFlood
	// Abuses is how many kinds there are.
	Abuses
)

var abuseNames = [Abuses]string{
	"rapid_reset", "continuation", "settings", "ping", "empty_frames", "priority", "window_update", "unknown_frames",
	"misbehaviour", "stalled", "output",
}

// String is the label for metrics.
func (a Abuse) String() string { return abuseNames[a] }

var defaultBudgets = [Abuses]Budget{
	RapidReset: {200, 50}, SettingsFlood: {100, 10}, PingFlood: {1000, 100}, EmptyFrames: {100, 10}, PriorityFlood: {1000, 100},
	WindowFlood: {5000, 500}, UnknownFrames: {1000, 100}, Misbehaviour: {200, 20},
}

// bucket is what is left of a Budget.
type bucket struct {
	spent int
	// since is when spent was last reduced by time.
	since time.Time
}

// take takes a token; false when there is none. The clock is asked only of one that has been used much.
func (b *bucket) take(of Budget) bool {
	b.spent++
	if b.spent <= of.Burst/2 {
		return true
	}
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	if back := int(now.Sub(b.since).Seconds() * float64(of.PerSecond)); back > 0 {
		b.spent = max(0, b.spent-back)
		b.since = now
	}
	return b.spent <= of.Burst
}

// give puts n tokens in; most is how many the bucket then holds over its burst.
func (b *bucket) give(n, most int) {
	if b.spent > -most {
		b.spent = max(-most, b.spent-n)
	}
}
