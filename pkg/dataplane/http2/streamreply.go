package http2

import (
	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// fail ends the request with an error of ours. It needs mu.
func (s *stream) fail(t *Turn, e *upstream.Error) {
	if s.ended {
		// The client has all of an answer: only the rest of the request is given up.
		s.giveUp(t, nil)
		s.maybeClose(t)
		return
	}
	s.giveUp(t, e)
	switch {
	case e.Reason == upstream.Internal:
		// Nobody knows what an answer would be worth.
		s.breakOff(t, e)
	case !s.answered:
		s.reply(t, errorReply(e, s.grpc), e)
	case s.grpc && e.Reason != upstream.ClientGone:
		s.replied(t, e, func() { s.server.sendTrailers(t, &s.flow, e.GRPCTrailers()) })
	default:
		s.breakOff(t, e)
	}
}

// breakOff resets the stream. It needs mu.
func (s *stream) breakOff(t *Turn, e *upstream.Error) {
	s.server.send(t, appendReset(s.server.put().b, s.id, http2.ErrCodeInternal))
	s.server.close(t, s, true, e)
}

// reply answers the request ourselves. It needs mu.
func (s *stream) reply(t *Turn, r *Reply, e *upstream.Error) {
	s.phase = replying
	body := r.Body
	if s.request.Method == "HEAD" {
		body = ""
	}
	s.answered = true
	s.replied(t, e, func() {
		s.head(t, &message.Response{Status: r.Status, Fields: r.Fields}, body == "")
		if body != "" {
			s.sentBytes += int64(len(body))
			s.server.sendData(t, &s.flow, []byte(body), true)
		}
	})
}

// replied has send send an end of our own, because of e where that is not nil, and then wants no more of the request.
// It needs mu.
func (s *stream) replied(t *Turn, e *upstream.Error, send func()) {
	s.unkeep()
	s.failure = e
	send()
	// With its end the stream may have been closed.
	if s.token != 0 && s.received > s.credited {
		s.discard(t, false)
	}
}

// head sends a head. It needs mu.
func (s *stream) head(t *Turn, r *message.Response, end bool) {
	v := s.server
	o := v.put()
	at := len(o.b)
	b := v.enc.AppendResponse(append(o.b, make([]byte, headLen)...), r)
	v.send(t, finishHeaders(b, at, s.id, end, v.peerFrame))
	if end {
		s.end, s.ended = true, true
		s.sentEnd(t)
	}
}
