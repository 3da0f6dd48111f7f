package http2

import "github.com/freshmesh/freshmesh/pkg/dataplane/upstream"

// resend sends what has come of the request so far to a new attempt's endpoint. It needs mu.
func (s *stream) resend(t *Turn) {
	end := s.recvEnded && !s.hasTrailers
	if len(s.kept) > 0 || end {
		s.consume(t, s.far.Data(t, s.farToken, s.kept, end))
	}
	if len(s.kept) > s.server.cfg.ReplayBytes {
		s.unkeep()
	}
	if s.hasTrailers {
		s.far.Trailers(t, s.farToken, s.trailers)
	}
}

// body passes some of the request's body on. It needs mu.
func (s *stream) body(t *Turn, p []byte, end bool) {
	v := s.server
	s.received += int64(len(p))
	s.came = true
	v.buffered += len(p)
	s.recvEnded = end
	if limit := v.cfg.MaxRequestBytes; limit > 0 && s.received > limit && s.phase != replying {
		s.fail(t, upstream.TooLarge(limit))
		return
	}
	switch s.phase {
	case replying:
		s.discard(t, end)
	case sending:
		n := s.far.Data(t, s.farToken, p, end)
		if !s.lost {
			if s.kept = append(s.kept, p...); len(s.kept) > v.cfg.ReplayBytes {
				s.unkeep()
			}
		}
		s.consume(t, n)
		s.maybeClose(t)
	default:
		s.kept = append(s.kept, p...)
	}
}

// discard takes what came for nobody. It needs mu.
func (s *stream) discard(t *Turn, end bool) {
	s.consumed = s.received
	s.consume(t, 0)
	if end {
		s.maybeClose(t)
	}
}

// forwardTrailers ends the request at the endpoint. It needs mu.
func (s *stream) forwardTrailers(t *Turn) {
	switch s.phase {
	case sending:
		s.far.Trailers(t, s.farToken, s.trailers)
		s.maybeClose(t)
	case replying:
		s.maybeClose(t)
	default:
	}
}

// consume gives n more bytes back to the client, but for those of an earlier attempt. It needs mu.
func (s *stream) consume(t *Turn, n int) {
	s.consumed += int64(n)
	more := int(s.consumed - s.credited)
	if more <= 0 {
		return
	}
	v := s.server
	s.credited = s.consumed
	v.buffered -= more
	s.owed += more
	s.repay(t)
	v.repay(t)
}

// repay gives the stream's window back when that is worth a frame. It needs mu.
func (s *stream) repay(t *Turn) {
	v := s.server
	if s.recvEnded || s.owed < v.cfg.StreamWindow/4 {
		return
	}
	v.send(t, appendWindowUpdate(v.put().b, s.id, s.owed))
	s.recvWindow += s.owed
	s.owed = 0
}

// sentSome implements flowOwner.
func (s *stream) sentSome(t *Turn, n int) {
	if s.phase == sending {
		s.far.Consumed(t, s.farToken, s.grow(n))
	}
}

// grow gives what is to be told to the endpoint as consumed after n bytes were: n, or once more than that, by which
// the answer's window there grows. It grows if the answer is long, and if the windows of all of the client's answers
// together have not grown by MaxBuffered. So a client that reads nothing has us hold that much and a small window for
// each stream. It needs mu.
func (s *stream) grow(n int) int {
	if n == 0 || s.grown > 0 || s.sentBytes < growAfter {
		return n
	}
	v, more := s.server, growth(s.far)
	if v.grown+more > v.cfg.MaxBuffered {
		return n
	}
	s.grown = more
	v.grown += more
	return n + more
}
