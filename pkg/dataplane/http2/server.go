package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2/header"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Preface is what a client says first, with its settings after it (RFC 9113 section 3.4).
const Preface = http2.ClientPreface

// Server is the server's side of a client's connection.
type Server struct {
	link
	handler Handler
	doomed  doomed

	// closed remembers how the latest streams ended; owned by the reader and mu, as link's.
	closed [256]ending

	// guarded by mu
	streams map[uint32]*Stream
	free    []*Stream
	// lastID is the highest stream that came, endings how many ended.
	lastID  uint32
	endings int
	leaving phaseOfLeaving
	// goodbye is what the last GOAWAY named.
	goodbye uint32
	tokens  uint64
	// deadlines fires at next, or never while that is zero.
	deadlines *time.Timer
	next      time.Time
	idleFor   time.Duration
	windowFor time.Duration
}

// phaseOfLeaving is how far GoAway has come.
type phaseOfLeaving uint8

const (
	staying phaseOfLeaving = iota
	// warned: a GOAWAY that names no stream was sent; what is under way to us is served.
	warned
	// told: the last stream was named; the connection closes when all have ended.
	told
)

// ending is how a stream ended.
type ending struct {
	id uint32
	// ours: we reset it, so its peer may not know yet. whole: both sides ended it.
	ours, whole bool
}

// NewServer takes a connection over. early is what was read of it already, up to 64 KiB.
func NewServer(nc net.Conn, early []byte, h Handler, c Config) *Server {
	v := &Server{handler: h, streams: map[uint32]*Stream{}, goodbye: maxID}
	cfg := c.withDefaults()
	v.init(nc, early, cfg, v)
	v.holds = cfg.MaxBuffered
	return v
}

// Run serves until the connection is over, or ctx ends, which cuts it. The
// error is nil where the client, or GoAway, closed it in good order; a *ConnError is what the client was told.
func (v *Server) Run(ctx context.Context) error {
	defer v.waitContext(ctx)()
	v.startTicks()
	err := v.preface()
	if err == nil {
		v.mu.Lock()
		v.greet(&v.turn, v.put().b,
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(v.cfg.MaxStreams)},
			http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
		v.mu.Unlock()
		err = v.run()
	}
	v.endAll(&v.turn)
	v.doomed.pardon()
	if err = v.finish(&v.turn, err); errors.Is(err, io.EOF) || errors.Is(err, errClosed) {
		return nil
	}
	return fmt.Errorf("http2: %w", err)
}

func (v *Server) preface() error {
	for len(v.have()) < len(Preface) {
		if err := v.more(); err != nil {
			return err
		}
	}
	if string(v.have()[:len(Preface)]) != Preface {
		return protocolError("no HTTP/2 preface")
	}
	v.from += len(Preface)
	return nil
}

// Active is how many streams are open.
func (v *Server) Active() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.streams)
}

// settle is for how long streams of a client that was told to go are still taken: those that it sent before it knew.
const settle = time.Second

// GoAway tells the client to go, in two steps (RFC 9113 section 6.8), and
// closes the connection when its streams have ended. It does not wait.
func (v *Server) GoAway() {
	var t Turn
	v.mu.Lock()
	if v.leaving == staying && !v.over {
		v.leaving = warned
		v.send(&t, appendGoAway(v.put().b, maxID, http2.ErrCodeNo, ""))
		time.AfterFunc(settle, v.goNow)
	}
	v.mu.Unlock()
	t.End()
}

// goNow is the second step.
func (v *Server) goNow() {
	var t Turn
	v.mu.Lock()
	if v.leaving == warned {
		v.leaving, v.goodbye = told, v.lastID
		v.send(&t, appendGoAway(v.put().b, v.lastID, http2.ErrCodeNo, ""))
		v.leave(&t)
	}
	v.mu.Unlock()
	t.End()
}

// leave ends the connection if it was told to go and has nothing left to do. It needs mu.
func (v *Server) leave(t *Turn) {
	if v.leaving == told && len(v.streams) == 0 && v.failure == nil {
		v.failure = errClosed
		t.Add(parting{v})
	}
}

// parting ends a connection after everything was written.
type parting struct{ v *Server }

// Flush makes the reader end.
func (p parting) Flush(t *Turn) {
	p.v.Flush(t)
	_ = p.v.nc.SetReadDeadline(past)
}

// endAll ends every stream after the last frame was read.
func (v *Server) endAll(t *Turn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := &upstream.Error{Reason: upstream.ClientGone, Err: errors.New("the client's connection ended")}
	if v.stuck {
		gone = v.slow()
	}
	for _, s := range v.streams {
		s.giveUp(t, gone)
		v.close(t, s, true, gone)
	}
	if v.deadlines != nil {
		v.deadlines.Stop()
	}
}

func (v *Server) headers(t *Turn, h *headers) error {
	if h.id%2 == 0 {
		return protocolError("a client's stream with an even number")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.streams[h.id]; s != nil {
		return v.trailers(t, s, h)
	}
	if h.id <= v.lastID {
		return v.lateHeaders(t, h)
	}
	v.lastID = h.id
	s := v.take(h.id)
	grpc, err := v.dec.Request(h.block, &s.request)
	_, malformed := errors.AsType[*header.Malformed](err)
	switch {
	case h.id > v.goodbye:
		v.drop(s)
		v.note(ending{id: h.id, ours: true})
		return lostCompression(err)
	case errors.Is(err, header.ErrTooLarge):
		v.streams[h.id] = s
		s.requested(h.end)
		s.reply(t, &Reply{Status: 431}, nil)
		return v.spend(Misbehaviour)
	case err != nil && !malformed:
		v.drop(s)
		return lostCompression(err)
	case malformed || h.loop || h.end && s.request.Length > 0:
		v.drop(s)
		return v.refused(t, h.id, http2.ErrCodeProtocol)
	case len(v.streams) >= v.cfg.MaxStreams:
		v.drop(s)
		return v.refused(t, h.id, http2.ErrCodeRefusedStream)
	}
	v.streams[h.id] = s
	s.grpc, s.length = grpc, s.request.Length
	s.requested(h.end)
	if h.end {
		s.request.Length = 0
	}
	v.earn(SettingsFlood, PingFlood, EmptyFrames, PriorityFlood, WindowFlood, UnknownFrames)
	s.phase = deciding
	x, d := v.handler.Request(Ticket{s, s.token}, &s.request)
	s.exchange = x
	if v.cfg.MaxRequestBytes > 0 && s.length > v.cfg.MaxRequestBytes {
		s.fail(t, tooLarge(v.cfg.MaxRequestBytes))
		return nil
	}
	s.decide(t, d)
	return nil
}

// lostCompression is the connection's error where err is more than a stream's.
func lostCompression(err error) error {
	if _, ok := errors.AsType[*header.Malformed](err); ok || err == nil || errors.Is(err, header.ErrTooLarge) {
		return nil
	}
	return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
}

// refused resets a stream that never came to be. It needs mu.
func (v *Server) refused(t *Turn, id uint32, code http2.ErrCode) error {
	v.note(ending{id: id, ours: true})
	v.send(t, appendReset(v.put().b, id, code))
	return v.spend(Misbehaviour)
}

// trailers ends a request. It needs mu.
func (v *Server) trailers(t *Turn, s *Stream, h *headers) error {
	fields, err := v.dec.Trailers(h.block, s.trailers)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	s.trailers = fields
	switch {
	case s.recvEnded:
		return v.broke(t, s, http2.ErrCodeStreamClosed)
	case err != nil || !h.end || h.loop || s.length > 0:
		return v.broke(t, s, http2.ErrCodeProtocol)
	}
	s.hasTrailers = true
	s.requested(true)
	s.forwardTrailers(t)
	return nil
}

func (v *Server) refuse(t *Turn, id uint32, code http2.ErrCode) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.streams[id]; s != nil {
		return v.broke(t, s, code)
	}
	if id > v.lastID {
		// A stream that never was cannot be reset (RFC 9113 section 6.4).
		return &ConnError{Code: code, Text: "a frame on a stream that never was breaks the rules"}
	}
	v.send(t, appendReset(v.put().b, id, code))
	return v.spend(Misbehaviour)
}

// broke resets a stream whose client broke a rule. It needs mu.
func (v *Server) broke(t *Turn, s *Stream, code http2.ErrCode) error {
	e := &upstream.Error{Reason: upstream.BadBody, Err: fmt.Errorf("the client broke the rules of HTTP/2: %s", code)}
	s.giveUp(t, e)
	v.send(t, appendReset(v.put().b, s.id, code))
	v.close(t, s, true, e)
	return v.spend(Misbehaviour)
}

// lateHeaders is a list on a stream that is over. It needs mu.
func (v *Server) lateHeaders(t *Turn, h *headers) error {
	if err := v.dec.Skip(h.block); err != nil {
		return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
	}
	e, found := v.how(h.id)
	switch {
	case found && e.whole:
		return &ConnError{Code: closeCode, Text: "HEADERS on a stream that has ended"}
	case found && e.ours:
		return v.spend(Misbehaviour)
	case !found && v.endings < len(v.closed):
		return protocolError("a stream's number is lower than one before")
	}
	return v.refused(t, h.id, closeCode)
}

// how tells how a stream ended, if that is remembered. It needs mu.
func (v *Server) how(id uint32) (ending, bool) {
	for _, e := range v.closed {
		if e.id == id {
			return e, true
		}
	}
	return ending{}, false
}

func (v *Server) note(e ending) {
	v.closed[v.endings%len(v.closed)] = e
	v.endings++
}

func (v *Server) data(t *Turn, fh http2.FrameHeader, p []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.received(t, int(fh.Length)); err != nil {
		return err
	}
	s := v.streams[fh.StreamID]
	if s == nil {
		return v.lateData(t, fh)
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if s.recvEnded {
		return v.broke(t, s, closeCode)
	}
	if s.recvWindow -= int(fh.Length); s.recvWindow < 0 {
		return v.broke(t, s, http2.ErrCodeFlowControl)
	}
	p, padding, err := unpad(fh, p)
	if err != nil {
		return err
	}
	s.owed += padding
	if len(p) == 0 && !end {
		return v.spend(EmptyFrames)
	}
	if s.length >= 0 {
		if s.length -= int64(len(p)); s.length < 0 || end && s.length > 0 {
			return v.broke(t, s, http2.ErrCodeProtocol)
		}
	}
	v.earn(WindowFlood, PingFlood)
	s.body(t, p, end)
	return nil
}

// lateData is data on a stream that is over. It needs mu.
func (v *Server) lateData(t *Turn, fh http2.FrameHeader) error {
	if fh.StreamID > v.lastID || fh.StreamID%2 == 0 {
		return protocolError("DATA on a stream that never was")
	}
	if e, found := v.how(fh.StreamID); found && e.ours {
		return nil
	}
	return v.refused(t, fh.StreamID, closeCode)
}

func (v *Server) reset(t *Turn, id uint32, code http2.ErrCode) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.streams[id]
	if s == nil {
		if id > v.lastID || id%2 == 0 {
			return protocolError("RST_STREAM on a stream that never was")
		}
		return v.spend(RapidReset)
	}
	if s.ended {
		// It has all of the answer, and does not send the rest of its request.
		s.giveUp(t, nil)
		v.close(t, s, false, s.failure)
		return nil
	}
	early := !s.answered
	e := &upstream.Error{Reason: upstream.ClientGone, Err: fmt.Errorf("the client reset the stream: %s", code)}
	s.giveUp(t, e)
	v.close(t, s, false, e)
	if early {
		return v.spend(RapidReset)
	}
	return nil
}

func (v *Server) goneAway(*Turn, uint32, http2.ErrCode) {}
func (v *Server) settled(*Turn, bool)                   {}

func (v *Server) opened(t *Turn, id uint32, n int) (bool, error) {
	if id == 0 {
		v.refill(t)
		return true, nil
	}
	s := v.streams[id]
	if s == nil {
		return id <= v.lastID && id%2 == 1, nil
	}
	if !v.widen(t, &s.flow, n) {
		return true, v.broke(t, s, http2.ErrCodeFlowControl)
	}
	return true, nil
}

func (v *Server) widened(n int) bool {
	for _, s := range v.streams {
		if s.window += n; s.window > maxWindow {
			return false
		}
		v.list(&s.flow)
	}
	return true
}

func (v *Server) last() uint32 { return min(v.lastID, v.goodbye) }

func (v *Server) tick(t *Turn, _ time.Time) error {
	if len(v.streams) == 0 {
		if v.idleFor += v.tickEvery(); v.idleFor >= v.cfg.IdleTimeout {
			return &ConnError{Code: http2.ErrCodeNo, Text: "idle"}
		}
		return nil
	}
	v.idleFor = 0
	if v.sendWindow > 0 || len(v.blocked) == 0 {
		v.windowFor = 0
	} else if v.windowFor += v.tickEvery(); v.windowFor >= v.cfg.StallTimeout {
		return abusive(Stalled, "the connection's window stays zero")
	}
	for _, s := range v.streams {
		if v.stall(&s.flow) {
			e := v.slow()
			s.giveUp(t, e)
			v.send(t, appendReset(v.put().b, s.id, http2.ErrCodeEnhanceYourCalm))
			v.close(t, s, true, e)
		} else if s.pauses(v.tickEvery()) {
			s.fail(t, &upstream.Error{
				Reason: upstream.BodyTimeout, Unanswered: !s.answered, Err: fmt.Errorf("no byte of the request body for %s", v.cfg.BodyTimeout),
			})
		}
	}
	return nil
}

// slow is the error of a client that does not read.
func (v *Server) slow() *upstream.Error {
	return &upstream.Error{Reason: upstream.SlowReader, Err: fmt.Errorf("the client took nothing of the response for %s", v.cfg.StallTimeout)}
}

// take gives a stream to use. It needs mu.
func (v *Server) take(id uint32) *Stream {
	var s *Stream
	if n := len(v.free); n > 0 {
		s = v.free[n-1]
		v.free = v.free[:n-1]
	} else {
		s = &Stream{server: v}
		s.owner = s
	}
	v.tokens++
	s.begin(id, v.tokens)
	return s
}

// drop gives a stream back. It needs mu.
func (v *Server) drop(s *Stream) {
	s.clear()
	if !s.listed && len(v.free) < maxFree {
		v.free = append(v.free, s)
	}
}

// maxFree is how many streams a connection keeps for later.
const maxFree = 64

// close takes a stream off the books. It needs mu.
func (v *Server) close(t *Turn, s *Stream, ours bool, e *upstream.Error) {
	delete(v.streams, s.id)
	whole := !ours && s.recvEnded && s.ended
	v.note(ending{id: s.id, ours: ours, whole: whole})
	if whole {
		v.earn(RapidReset)
	}
	if left := s.received - s.credited; left > 0 {
		v.held -= int(left)
		v.repay(t)
	}
	if s.exchange != nil {
		s.exchange.Ended(Outcome{Received: s.received, Sent: s.sentBytes, Err: e, Answered: s.passed})
	}
	v.drop(s)
	v.leave(t)
}

// schedule has expire called at that time, or before. It needs mu.
func (v *Server) schedule(at time.Time) {
	if !v.next.IsZero() && !at.Before(v.next) {
		return
	}
	v.next = at
	if v.deadlines == nil {
		v.deadlines = time.AfterFunc(time.Until(at), v.expire)
		return
	}
	v.deadlines.Reset(time.Until(at))
}

// expire ends what is over its time.
func (v *Server) expire() {
	var t Turn
	v.mu.Lock()
	v.next = time.Time{}
	now := time.Now()
	var next time.Time
	for _, s := range v.streams {
		switch {
		case s.deadline.IsZero():
		case !s.deadline.After(now):
			s.deadline = time.Time{}
			s.expired(&t)
		case next.IsZero() || s.deadline.Before(next):
			next = s.deadline
		}
	}
	if !next.IsZero() {
		v.schedule(next)
	}
	v.mu.Unlock()
	t.End()
}

func tooLarge(limit int64) *upstream.Error {
	return &upstream.Error{Reason: upstream.BodyTooLarge, Unanswered: true, Err: fmt.Errorf("the request's body is longer than %d bytes", limit)}
}
