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

// side is what a link's owner, a *Server or an *endpointConn, does about frames that
// concern its streams. All but tick and last are called by the reader alone; those that
// say so need mu, the others take it.
type side interface {
	// headers has a whole block, data a payload as it came, reset an RST_STREAM. An error ends the connection, here and below.
	headers(t *Turn, h *headers) error
	data(t *Turn, fh http2.FrameHeader, p []byte) error
	reset(t *Turn, id uint32, code http2.ErrCode) error
	// refuse resets a stream on which the peer broke a rule.
	refuse(t *Turn, id uint32, code http2.ErrCode) error
	goneAway(t *Turn, last uint32, code http2.ErrCode)
	// settingsTaken says that the peer's settings have been taken, for the first time or again.
	settingsTaken(t *Turn, first bool)
	// windowUpdated says that a stream may send n more, or all may for id 0. known is false for a stream that never was. It needs mu.
	windowUpdated(t *Turn, id uint32, n int) (known bool, err error)
	// initialWindowChanged adds n to the send windows of all streams; false where one gets too large. It needs mu.
	initialWindowChanged(n int) bool
	// tick looks for what stalls; it is called every PingTimeout/2. An error ends the connection. It needs mu.
	tick(t *Turn) error
	// last is the highest stream of the peer's that we have seen to. It needs mu.
	last() uint32
}

// link is what both sides have in common: the protocol of a connection without its streams. Its files are link.go
// (reading frames, budgets, the connection's windows), linkframes.go (what each kind of frame means), flow.go (sending
// what a stream has to send) and linkend.go (silence, and the end).
type link struct {
	wire

	// set once
	cfg  *Config
	side side
	// initial is the window of a stream of the peer's when it begins.
	initial int

	// owned by the reader
	turn  Turn
	dec   *header.Decoder
	began bool
	// pending is the header block that is being read; partial is what came of one that has several frames, parts how many.
	pending headers
	partial []byte
	parts   int
	// seized: the reader holds mu by seize.
	seized bool

	// guarded by mu
	// buckets are what is left of the budgets.
	buckets [Abuses]bucket
	enc     *header.Encoder
	// sendWindow and recvWindow are those of the connection; owed is what came and is not given back yet.
	sendWindow, recvWindow, owed int
	// buffered is what we hold of bodies that came here. Above maxBuffered the connection's window is not given back; 0
	// is no limit.
	buffered, maxBuffered int
	// What the peer's settings say.
	peerWindow, peerFrame int
	peerStreams           uint32
	peerConnect           bool
	// blocked are the flows that wait for the connection's window, or for room in the output.
	blocked []*flow
	// failure is why somebody else than its reader ends the connection; nil while nobody does.
	failure error
	// silent is for how long nothing came, asked: a PING of ours is not answered.
	silent time.Duration
	asked  bool
	// pings is how many PINGs of ours came since the peer sent a head or data, soon how many may before they
	// become rare; 0 is no limit.
	pings, soon int
	// ticker calls ticked until over.
	ticker *time.Timer
	over   bool

	// heard is set by every read, and taken back by every tick.
	heard atomic.Bool
}

func (l *link) init(nc net.Conn, early []byte, cfg *Config, s side) {
	l.wire.init(nc, early, cfg.StallTimeout)
	l.cfg, l.side = cfg, s
	l.dec, l.enc = header.NewDecoder(cfg.lists()), header.NewEncoder()
	l.sendWindow, l.recvWindow, l.initial = firstWindow, cfg.ConnWindow, cfg.StreamWindow
	l.peerWindow, l.peerFrame, l.peerStreams = firstWindow, frameSize, 1<<32-1
	l.wire.guard = l.guard
	l.idle, l.wire.refill = l.turn.end, l.refill
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
					return fh, nil, l.framerError(err)
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

// spend takes a token of a budget; the error is that there is none. It needs mu; charge takes it.
func (l *link) spend(a Abuse) error {
	if !l.buckets[a].take(l.cfg.Budgets[a]) {
		return abusive(a, "too many frames of the kind "+a.String())
	}
	return nil
}

func (l *link) charge(a Abuse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(a)
}

// earnAll puts tokens back for the head of a request or of its answer. It needs mu.
func (l *link) earnAll() {
	l.earn(SettingsFlood, PingFlood, EmptyFrames, PriorityFlood, WindowFlood, UnknownFrames)
}

// earn puts a token back into each of the budgets, for what carries something. It needs mu.
func (l *link) earn(kinds ...Abuse) {
	for _, a := range kinds {
		l.buckets[a].give(1, 0)
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
		t.add(l)
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
	if l.owed < l.cfg.ConnWindow/4 || l.maxBuffered > 0 && l.buffered > l.maxBuffered {
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
