package http2

import (
	"time"

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
