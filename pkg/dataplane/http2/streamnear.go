package http2

import (
	"fmt"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Ready implements Near.
func (s *stream) Ready(t *Turn, token uint64) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt == token && s.phase == waiting {
		s.open(t, true)
	}
}

// Failed implements Near.
func (s *stream) Failed(t *Turn, token uint64, e *upstream.Error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt == token {
		s.failed(t, e)
	}
}

// Response implements Near.
func (s *stream) Response(t *Turn, token uint64, r *message.Response, end bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt != token {
		return
	}
	if r.Status < 200 {
		if s.interim++; s.interim <= maxInterim {
			s.head(t, r, false)
			return
		}
		s.fail(t, &upstream.Error{Reason: upstream.ProtocolError, Err: fmt.Errorf("more than %d interim responses", maxInterim)})
		return
	}
	switch d := s.decider.Response(r, end); {
	case d.Hold:
		s.held = message.Response{Status: r.Status, Fields: append(s.held.Fields[:0], r.Fields...), Length: r.Length}
		s.hold = true
	case !s.instead(t, d):
		s.passOn(t, r, end)
	}
}

// instead gives the answer up for another decision; false where there is none, or none that can be followed. It needs mu.
func (s *stream) instead(t *Turn, d Decision) bool {
	if d == (Decision{}) || d.To != nil && !s.replayable() {
		return false
	}
	s.giveUp(t, nil)
	s.phase = deciding
	s.decide(t, d)
	return true
}

// passOn passes the final head on. It needs mu.
func (s *stream) passOn(t *Turn, r *message.Response, end bool) {
	s.answered, s.passed = true, true
	s.unkeep()
	s.head(t, r, end)
}

// release passes on a head that was held. It needs mu.
func (s *stream) release(t *Turn) {
	if s.hold {
		s.passOn(t, &s.held, false)
		s.unhold()
	}
}

// Data implements Near.
func (s *stream) Data(t *Turn, token uint64, p []byte, end bool) int {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt != token {
		return len(p)
	}
	s.release(t)
	s.sentBytes += int64(len(p))
	return s.grow(s.server.sendData(t, &s.flow, p, end))
}

// Trailers implements Near.
func (s *stream) Trailers(t *Turn, token uint64, fields []message.Field) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt != token {
		return
	}
	if d := s.decider.Trailers(fields); s.hold && s.instead(t, d) {
		return
	}
	s.release(t)
	s.server.sendTrailers(t, &s.flow, fields)
}

// Consumed implements Near.
func (s *stream) Consumed(t *Turn, token uint64, n int) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.guard()
	if s.attempt == token {
		s.consume(t, n)
	}
}
