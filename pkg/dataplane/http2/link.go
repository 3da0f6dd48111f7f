package http2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2/header"
)

// side is what a link's owner, a *Server or a *Client, does about frames that
// concern its streams. All but ended are called by the reader; those that
// say so need mu.
type side interface {
	headers(t *Turn, h *headers) error
	data(t *Turn, fh http2.FrameHeader, p []byte) error
	reset(t *Turn, id uint32, code http2.ErrCode) error
	// refuse resets a stream on which the peer broke a rule.
	refuse(t *Turn, id uint32, code http2.ErrCode) error
	goneAway(t *Turn, last uint32, code http2.ErrCode)
	// settled says that the peer's settings have been taken.
	settled(t *Turn, first bool)
	// opened says that a stream may send more, or all may for id 0. known is false for a stream that never was. It needs mu.
	opened(t *Turn, id uint32, n int) (known bool, err error)
	// widened adds to the send windows of all streams; false where one gets too large. It needs mu.
	widened(n int) bool
	// tick looks for what stalls; it is called every PingTimeout/2. An error ends the connection. It needs mu.
	tick(t *Turn, now time.Time) error
	// last is the highest stream of the peer's that we have seen to. It needs mu.
	last() uint32
}

// link is what both sides have in common: the protocol of a connection without its streams.
type link struct {
	wire

	// set once
	cfg  *Config
	side side
	// initial is the window of a stream of the peer's when it begins.
	initial int

	// owned by the reader
	turn    Turn
	dec     *header.Decoder
	began   bool
	pending headers
	partial []byte
	parts   int
	// seized: the reader holds mu.
	seized bool

	// guarded by mu
	left [Abuses]bucket
	enc  *header.Encoder
	// sendWindow and recvWindow are those of the connection; owed is what came and is not given back yet.
	sendWindow, recvWindow, owed int
	// held is what we hold of bodies that came here, up to holds; 0 is no limit.
	held, holds int
	// What the peer's settings say.
	peerWindow, peerFrame int
	peerStreams           uint32
	peerConnect           bool
	// blocked are the flows that wait for the connection's window, or for room in the output.
	blocked []*flow
	// failure is why a timer closed the connection; nil otherwise.
	failure error
	// silent is for how long nothing came, asked: a PING of ours is not answered.
	silent time.Duration
	asked  bool
	// pings is how many PINGs of ours came since the peer sent a head or data, soon how many may before they
	// become rare; 0 is no limit.
	pings, soon int
	ticker      *time.Timer
	over        bool

	// heard is set by every read.
	heard atomic.Bool
}

func (l *link) init(nc net.Conn, early []byte, cfg *Config, s side) {
	l.wire.init(nc, early, cfg.StallTimeout)
	l.cfg, l.side = cfg, s
	l.dec, l.enc = header.NewDecoder(cfg.lists()), header.NewEncoder()
	l.sendWindow, l.recvWindow, l.initial = firstWindow, cfg.ConnWindow, cfg.StreamWindow
	l.peerWindow, l.peerFrame, l.peerStreams = firstWindow, frameSize, 1<<32-1
	l.wire.guard = l.guard
	l.idle, l.wire.refill = l.turn.End, l.refill
}

// run reads frames until the connection ends, and gives why: io.EOF where the
// peer closed between frames.
func (l *link) run() error {
	for {
		fh, p, err := l.next()
		if err != nil {
			return err
		}
		if err := l.frame(&l.turn, fh, p); err != nil {
			return err
		}
	}
}

// next gives the next frame. Of those that carry traffic p is the payload as
// it came; the others come as x/net's Framer parsed them, by frame.
func (l *link) next() (http2.FrameHeader, []byte, error) {
	for {
		have := l.have()
		if len(have) >= headLen {
			n := int(have[0])<<16 | int(have[1])<<8 | int(have[2])
			if n > frameSize {
				return http2.FrameHeader{}, nil, &ConnError{Code: http2.ErrCodeFrameSize, Text: fmt.Sprintf("a frame of %d bytes", n)}
			}
			if len(have) >= headLen+n {
				fh, err := l.framer.ReadFrameHeader()
				if err != nil {
					return fh, nil, l.framing(err)
				}
				return fh, l.have()[:n], nil
			}
		}
		if err := l.more(); err != nil {
			if errors.Is(err, io.EOF) && len(have) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return http2.FrameHeader{}, nil, err
		}
		l.heard.Store(true)
	}
}

// spend takes a token of a budget. It needs mu; charge does not.
func (l *link) spend(a Abuse) error {
	if !l.left[a].take(l.cfg.Budgets[a]) {
		return abusive(a, "too many frames of the kind "+a.String())
	}
	return nil
}

func (l *link) charge(a Abuse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(a)
}

// earn puts tokens back for what carries something. It needs mu.
func (l *link) earn(kinds ...Abuse) {
	for _, a := range kinds {
		l.left[a].give(1, 0)
	}
}

// send takes b, which is the output with something appended, and has the turn write it. It needs mu.
func (l *link) send(t *Turn, b []byte) {
	l.out.b = b
	if l.dead {
		l.out.free()
		l.out = nil
		return
	}
	if !l.flagged {
		l.flagged = true
		t.Add(l)
	}
	if len(b) > maxOutput {
		// Its reader ends the connection with the error.
		l.failure = abusive(OutputFlood, "what is to be written is not read")
		l.kill()
	}
}

// Flush writes what waits.
func (l *link) Flush(t *Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.guard()
	l.flagged = false
	l.write(t)
}

// received takes n bytes of flow-controlled data off the connection's window. It needs mu.
func (l *link) received(t *Turn, n int) error {
	l.recvWindow -= n
	l.owed += n
	if l.recvWindow < 0 {
		return flowError("more data than the connection's window allows")
	}
	l.repay(t)
	return nil
}

// repay gives the connection's window back, unless we hold too much already. It needs mu.
func (l *link) repay(t *Turn) {
	if l.owed < l.cfg.ConnWindow/4 || l.holds > 0 && l.held > l.holds {
		return
	}
	l.send(t, appendWindowUpdate(l.put().b, 0, l.owed))
	l.recvWindow += l.owed
	l.owed = 0
}

// greet appends our settings and the connection's window. It needs mu.
func (l *link) greet(t *Turn, b []byte, extra ...http2.Setting) {
	all := append([]http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(l.initial)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(l.cfg.MaxHeaderBytes)},
	}, extra...)
	b = appendSettings(b, all...)
	if more := l.cfg.ConnWindow - firstWindow; more > 0 {
		b = appendWindowUpdate(b, 0, more)
	}
	l.recvWindow = max(l.cfg.ConnWindow, firstWindow)
	l.send(t, b)
}
