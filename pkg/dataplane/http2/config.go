package http2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2/header"
)

// Config has the limits of a connection. Zero values stand for the defaults,
// which are named at each with those of Envoy 1.40 and of Go 1.26's net/http.
type Config struct {
	// MaxStreams is how many streams a client may have open; 1000 (Envoy 1024, Go 250).
	MaxStreams int
	// MaxHeaderBytes and MaxHeaderFields bound a header list; 64 KiB and 256 (Envoy 60 KiB and 100, Go 1 MiB and
	// no limit). A request over them is answered with 431; a block of twice as many bytes ends the connection.
	MaxHeaderBytes, MaxHeaderFields int
	// StreamWindow is how much of a body may be on its way through us, for each stream and direction, and so
	// the memory that a slow reader can hold; 256 KiB (Envoy 16 MiB, Go 1 MiB). That of an answer begins with 64 KiB
	// at most, and grows when the client has taken something and MaxBuffered lets it.
	StreamWindow int
	// ConnWindow is the window of a connection; 16 MiB (Envoy 24 MiB, Go 1 MiB). It is given back as data comes,
	// so that a stream which nobody reads holds no other up.
	ConnWindow int
	// MaxBuffered is how much of its requests' bodies we hold for one client, over which its whole connection
	// waits, and by how much the windows of its answers may grow, all together; 16 MiB.
	MaxBuffered int
	// MaxRequestBytes bounds a request's body; 0 for no limit.
	MaxRequestBytes int64
	// ReplayBytes is how much of a request's body is kept to be sent again; 64 KiB. Below 0 is none.
	ReplayBytes int
	// PingAfter is how long a connection may be silent before it is asked with a PING, and PingTimeout how long
	// the answer may take; 30 s and 10 s (Envoy: off, Go's server: off). Both are kept to within a tick of PingTimeout/2.
	// An endpoint that answers two of them and sends nothing else is asked every 5 min, as gRPC servers want it.
	PingAfter, PingTimeout time.Duration
	// IdleTimeout closes a client's connection without streams (with a GOAWAY); 1 h (Envoy 1 h, Go: none).
	IdleTimeout time.Duration
	// StallTimeout is how long a peer may leave us with data to send and no leave to do so: a window that stays
	// zero, a socket that is not read; 5 min, as Envoy's stream_idle_timeout. The stream is reset, or the connection closed.
	StallTimeout time.Duration
	// BodyTimeout is how long the body of a request that said its length may pause; 0 for ever.
	BodyTimeout time.Duration
	// Budgets bound what costs a peer nothing; see Abuse.
	Budgets [Abuses]Budget
	// Abused is told of each connection that is closed for abuse; nil for nobody. It must not block.
	Abused func(Abuse)
	// Panicked is told of a panic, with its stack. It ends the connection that it happened on, with all that is on
	// it (upstream.Internal); nil lets it pass. It must not block, and may be called with locks held.
	Panicked func(v any, stack []byte)
}

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

const (
	// maxParts is how many frames a header block may have.
	maxParts = 32
	// maxOutput is how much may wait to be written, data not counted, which flow control bounds.
	maxOutput = 8 << 20
	// frameSize is the greatest frame that we take, which is HTTP/2's default.
	frameSize = 16 << 10
	// firstWindow is that of a stream or connection before anything is said (RFC 9113 section 6.9.2).
	firstWindow = 65535
	maxWindow   = 1<<31 - 1
	maxID       = 1<<31 - 1
)

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// withDefaults gives a copy without zero values.
func (c Config) withDefaults() *Config {
	orDefault(&c.MaxStreams, 1000)
	orDefault(&c.MaxHeaderBytes, 64<<10)
	orDefault(&c.MaxHeaderFields, 256)
	orDefault(&c.StreamWindow, 256<<10)
	orDefault(&c.ConnWindow, 16<<20)
	orDefault(&c.MaxBuffered, 16<<20)
	orDefault(&c.ReplayBytes, 64<<10)
	orDefault(&c.PingAfter, 30*time.Second)
	orDefault(&c.PingTimeout, 10*time.Second)
	orDefault(&c.IdleTimeout, time.Hour)
	orDefault(&c.StallTimeout, 5*time.Minute)
	for i := range c.Budgets {
		if c.Budgets[i] == (Budget{}) {
			c.Budgets[i] = defaultBudgets[i]
		}
	}
	return &c
}

func (c *Config) lists() header.Limits {
	return header.Limits{Bytes: c.MaxHeaderBytes, Fields: c.MaxHeaderFields}
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

// ConnError ends a connection: it is what the GOAWAY says.
type ConnError struct {
	Code http2.ErrCode
	// Abuse is set where Abusive is.
	Abuse   Abuse
	Abusive bool
	Text    string
}

// Error gives the code and what happened.
func (e *ConnError) Error() string { return e.Code.String() + ": " + e.Text }

func protocolError(text string) error {
	return &ConnError{Code: http2.ErrCodeProtocol, Text: text}
}

func flowError(text string) error {
	return &ConnError{Code: http2.ErrCodeFlowControl, Text: text}
}

func abusive(a Abuse, text string) error {
	return &ConnError{Code: http2.ErrCodeEnhanceYourCalm, Abuse: a, Abusive: true, Text: text}
}

// errClosed ends a connection without a word: it is over already, or nothing is left to do on it.
var errClosed = errors.New("the connection is closed")
