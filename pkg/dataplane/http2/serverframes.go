package http2

import (
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2/header"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// The methods of this file implement side, and do what those need. The reader calls them without mu unless side says so.

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
	v.lastID, v.idleFor = h.id, 0
	s := v.newStream(h.id)
	grpc, err := v.dec.Request(h.block, &s.request)
	if away, err := v.turnAway(t, s, h, err); away {
		return err
	}
	v.streams[h.id] = s
	s.grpc, s.length, s.recvEnded = grpc, s.request.Length, h.end
	if h.end {
		s.request.Length = 0
	}
	v.earnAll()
	s.phase = deciding
	x, d := v.handler.Request(Ticket{s, s.token}, &s.request)
	s.decider = x
	if v.cfg.MaxRequestBytes > 0 && s.length > v.cfg.MaxRequestBytes {
		s.fail(t, upstream.TooLarge(v.cfg.MaxRequestBytes))
		return nil
	}
	s.decide(t, d)
	return nil
}

// turnAway refuses a request that cannot be served; away is false where it can. decoded is the error of its decoding. It
// needs mu.
func (v *Server) turnAway(t *Turn, s *stream, h *headers, decoded error) (away bool, err error) {
	_, malformed := errors.AsType[*header.Malformed](decoded)
	switch {
	case h.id > v.goodbye:
		// The client was told that it would not be served.
		v.drop(s)
		v.note(ending{id: h.id, ours: true})
		return true, lostCompression(decoded)
	case errors.Is(decoded, header.ErrTooLarge):
		v.streams[h.id] = s
		s.recvEnded = h.end
		s.reply(t, &Reply{Status: http.StatusRequestHeaderFieldsTooLarge}, nil)
		return true, v.spend(Misbehaviour)
	case decoded != nil && !malformed:
		v.drop(s)
		return true, lostCompression(decoded)
	case malformed || h.loop || h.end && s.request.Length > 0:
		v.drop(s)
		return true, v.refused(t, h.id, http2.ErrCodeProtocol)
	case len(v.streams) >= v.cfg.MaxStreams:
		v.drop(s)
		return true, v.refused(t, h.id, http2.ErrCodeRefusedStream)
	}
	return false, nil
}

// lostCompression is the connection's error where err is more than a stream's: the lists that follow cannot be read.
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
func (v *Server) trailers(t *Turn, s *stream, h *headers) error {
	fields, err := v.dec.Trailers(h.block, s.trailers)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	s.trailers = fields
	switch {
	case s.recvEnded:
		return v.violated(t, s, http2.ErrCodeStreamClosed)
	case err != nil || !h.end || h.loop || s.length > 0:
		return v.violated(t, s, http2.ErrCodeProtocol)
	}
	s.hasTrailers = true
	s.recvEnded = true
	s.forwardTrailers(t)
	return nil
}

func (v *Server) refuse(t *Turn, id uint32, code http2.ErrCode) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.streams[id]; s != nil {
		return v.violated(t, s, code)
	}
	if id > v.lastID {
		// A stream that never was cannot be reset (RFC 9113 section 6.4).
		return &ConnError{Code: code, Text: "a frame on a stream that never was breaks the rules"}
	}
	v.send(t, appendReset(v.put().b, id, code))
	return v.spend(Misbehaviour)
}

// violated resets a stream whose client broke a rule. It needs mu.
func (v *Server) violated(t *Turn, s *stream, code http2.ErrCode) error {
	e := &upstream.Error{Reason: upstream.BadBody, Err: fmt.Errorf("the client broke the rules of HTTP/2: %s", code)}
	s.giveUp(t, e)
	v.send(t, appendReset(v.put().b, s.id, code))
	v.close(t, s, true, e)
	return v.spend(Misbehaviour)
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
		return v.violated(t, s, http2.ErrCodeStreamClosed)
	}
	if s.recvWindow -= int(fh.Length); s.recvWindow < 0 {
		return v.violated(t, s, http2.ErrCodeFlowControl)
	}
	p, padding, err := unpad(fh, p)
	if err != nil {
		return err
	}
	s.owed += padding
	if len(p) == 0 && !end {
		// Nothing of it is passed on, so nothing else gives the padding back (RFC 9113 section 6.9.1).
		s.repay(t)
		return v.spend(EmptyFrames)
	}
	if s.length >= 0 {
		if s.length -= int64(len(p)); s.length < 0 || end && s.length > 0 {
			return v.violated(t, s, http2.ErrCodeProtocol)
		}
	}
	v.earn(WindowFlood, PingFlood)
	s.body(t, p, end)
	return nil
}

func (v *Server) reset(t *Turn, id uint32, code http2.ErrCode) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.streams[id]
	if s == nil {
		if id > v.lastID || id%2 == 0 {
			return protocolError("RST_STREAM on a stream that never was")
		}
		return v.lateReset(id)
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

// goneAway does nothing: a client says so when it ends, and serves no streams.
func (v *Server) goneAway(*Turn, uint32, http2.ErrCode) {}

// settingsTaken does nothing: nobody waits for a client's settings.
func (v *Server) settingsTaken(*Turn, bool) {}

func (v *Server) windowUpdated(t *Turn, id uint32, n int) (bool, error) {
	if id == 0 {
		v.refill(t)
		return true, nil
	}
	s := v.streams[id]
	if s == nil {
		return id <= v.lastID && id%2 == 1, nil
	}
	if !v.widen(t, &s.flow, n) {
		return true, v.violated(t, s, http2.ErrCodeFlowControl)
	}
	return true, nil
}

func (v *Server) initialWindowChanged(n int) bool {
	for _, s := range v.streams {
		if s.window += n; s.window > maxWindow {
			return false
		}
		v.list(&s.flow)
	}
	return true
}

// last is what a GOAWAY names, and so nothing after it is served.
func (v *Server) last() uint32 {
	v.goodbye = min(v.lastID, v.goodbye)
	return v.goodbye
}
