package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Preface is what a client says first, with its settings after it (RFC 9113 section 3.4).
const preface = http2.ClientPreface

// Server is our side, the server's, of a client's connection
//
//	serving ──GoAway──▶ warned ──noticeTime──▶ told ──last stream ended──▶ closed
//	   └─────────────────┴── idle, broken, abused, Cut ──┴────────────────────▲
//
// Where GoAway comes before the client's preface, it warns when that has come, and tells after noticeTime at the latest.
type Server struct {
	link
	handler Handler
	outside outsideFails

	// guarded by mu
	// closed has how the latest streams ended, up to remembered.
	closed  []ending
	streams map[uint32]*stream
	free    []*stream
	// lastID is the highest stream that came, endings how many ended.
	lastID  uint32
	endings int
	leaving phaseOfLeaving
	// greeted: our settings, which come before all else, were sent. toGo: GoAway was called before.
	greeted, toGo bool
	// goodbye is what the last GOAWAY named.
	goodbye uint32
	// tokens is the last one that was given to a stream, or to an attempt.
	tokens uint64
	// grown is by how much the windows of answers have grown.
	grown int
	// deadlines fires at next, or never while that is zero.
	deadlines *time.Timer
	next      time.Time
	// idleFor is for how long there was no stream, windowFor for how long the connection's window was used up.
	idleFor   time.Duration
	windowFor time.Duration
}

// phaseOfLeaving is how far GoAway has come.
type phaseOfLeaving uint8

const (
	serving phaseOfLeaving = iota
	// warned: a GOAWAY that names no stream was sent; what is under way to us is served.
	warned
	// told: the last stream was named; the connection closes when all have ended.
	told
)

// NewServer takes a connection over. early is what was read of it already, up to 64 KiB.
func NewServer(nc net.Conn, early []byte, h Handler, c Config) *Server {
	v := &Server{handler: h, streams: map[uint32]*stream{}, goodbye: maxID}
	cfg := c.withDefaults()
	v.init(nc, early, cfg, v)
	v.maxBuffered = cfg.MaxBuffered
	return v
}

// Run serves until the connection is over, or ctx ends, which cuts it. The
// error is nil where the client, or GoAway, closed it in good order; a *ConnError is what the client was told.
func (v *Server) Run(ctx context.Context) error {
	defer v.waitContext(ctx)()
	v.startTicks()
	err := v.speak()
	v.endAll(&v.turn)
	v.outside.close()
	if err = v.finish(&v.turn, err); errors.Is(err, io.EOF) || errors.Is(err, errClosed) {
		return nil
	}
	return fmt.Errorf("http2: %w", err)
}

// speak greets and reads, until the last frame.
func (v *Server) speak() (err error) {
	defer v.caught(&err)
	if err := v.preface(); err != nil {
		return err
	}
	v.seize()
	v.greet(&v.turn, v.put().b,
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(v.cfg.MaxStreams)},
		http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	v.greeted = true
	if v.toGo {
		v.warn(&v.turn)
	}
	v.yield()
	return v.run()
}

// preface reads what a client says first.
func (v *Server) preface() error {
	for len(v.have()) < len(preface) {
		if err := v.more(); err != nil {
			return err
		}
	}
	if string(v.have()[:len(preface)]) != preface {
		return protocolError("no HTTP/2 preface")
	}
	v.from += len(preface)
	return nil
}

// Cut ends the connection at once with all that is on it, before Run too; Run gives the cause.
func (v *Server) Cut(cause error) { v.cut(cause) }

// noticeTime is for how long streams of a client that was warned are still taken: those that it sent before it knew.
const noticeTime = time.Second

// GoAway tells the client to go, in two steps (RFC 9113 section 6.8), and
// closes the connection when its streams have ended. It does not wait.
func (v *Server) GoAway() {
	var t Turn
	v.locked(func() {
		switch {
		case v.greeted:
			v.warn(&t)
		case !v.toGo:
			v.toGo = true
			time.AfterFunc(noticeTime, v.goNow)
		}
	})
	t.end()
}

// warn is the first step. It needs mu.
func (v *Server) warn(t *Turn) {
	switch {
	case v.over:
	case v.leaving == serving:
		v.leaving = warned
		v.send(t, appendGoAway(v.put().b, maxID, http2.ErrCodeNo, ""))
		time.AfterFunc(noticeTime, v.goNow)
	case v.leaving == told:
		// The preface came when the time was over already.
		v.send(t, appendGoAway(v.put().b, v.goodbye, http2.ErrCodeNo, ""))
	}
}

// goNow is the second step.
func (v *Server) goNow() {
	var t Turn
	v.locked(func() {
		switch {
		case v.leaving == warned:
			v.leaving, v.goodbye = told, v.lastID
			v.send(&t, appendGoAway(v.put().b, v.lastID, http2.ErrCodeNo, ""))
			v.leave(&t)
		case !v.greeted && !v.over:
			// Its client has not even greeted.
			v.leaving, v.goodbye = told, 0
			v.leave(&t)
		}
	})
	t.end()
}

// leave ends the connection if it was told to go and has nothing left to do. It needs mu.
func (v *Server) leave(t *Turn) {
	if v.leaving == told && len(v.streams) == 0 && v.failure == nil {
		v.failure = errClosed
		t.add(parting{&v.link})
	}
}

// endAll ends every stream after the last frame was read.
func (v *Server) endAll(t *Turn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := &upstream.Error{Reason: upstream.ClientGone, Err: errors.New("the client's connection ended")}
	if v.stuck {
		gone = v.slow()
	}
	if e, ok := errors.AsType[*upstream.Error](v.failure); ok && e.Reason == upstream.Internal {
		gone = e
	}
	for _, s := range v.streams {
		v.forsake(t, s, gone)
		v.close(t, s, true, gone)
	}
	if v.deadlines != nil {
		v.deadlines.Stop()
	}
}

// forsake gives an attempt up. A panic in that ends this connection, and endAll goes on. It needs mu.
func (v *Server) forsake(t *Turn, s *stream, e *upstream.Error) {
	defer v.guard()
	s.giveUp(t, e)
}

// newStream takes a stream into use. It needs mu.
func (v *Server) newStream(id uint32) *stream {
	var s *stream
	if n := len(v.free); n > 0 {
		s = v.free[n-1]
		v.free = v.free[:n-1]
	} else {
		s = &stream{server: v}
		s.owner = s
	}
	v.tokens++
	s.begin(id, v.tokens)
	return s
}

// drop gives a stream back. It needs mu.
func (v *Server) drop(s *stream) {
	s.clear()
	if !s.listed && len(v.free) < maxFree {
		v.free = append(v.free, s)
	}
}

// maxFree is how many streams a connection keeps for later.
const maxFree = 64

// close takes a stream off the books. ours: we ended it, so that frames for it may be under way. It needs mu.
func (v *Server) close(t *Turn, s *stream, ours bool, e *upstream.Error) {
	delete(v.streams, s.id)
	whole := !ours && s.recvEnded && s.ended
	v.note(ending{id: s.id, ours: ours, whole: whole})
	if whole {
		// One that does well may at times give up all that it has open: its time is over, or its own client has gone.
		v.buckets[RapidReset].give(1, v.cfg.MaxStreams)
	}
	if left := s.received - s.credited; left > 0 {
		v.buffered -= int(left)
		v.repay(t)
	}
	v.grown -= s.grown
	if s.decider != nil {
		v.tell(s, Outcome{Received: s.received, Sent: s.sentBytes, Err: e, Answered: s.passed})
	}
	v.drop(s)
	v.leave(t)
}

// tell tells the decider of its end, from which the stream goes on in any case. It needs mu.
func (v *Server) tell(s *stream, o Outcome) {
	defer v.guard()
	s.decider.Ended(o)
}
