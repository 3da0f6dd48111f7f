package http2

import (
	"fmt"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// tick implements side: it ends a connection that carries nothing, one whose window stays zero, and streams that
// neither side moves. It needs mu.
func (v *Server) tick(t *Turn) error {
	if len(v.streams) == 0 {
		if v.idleFor += v.tickEvery(); v.idleFor >= v.cfg.IdleTimeout {
			return &ConnError{Code: http2.ErrCodeNo, Text: "idle"}
		}
		return nil
	}
	v.idleFor = 0
	v.prune()
	if v.sendWindow > 0 || len(v.blocked) == 0 {
		v.windowFor = 0
	} else if v.windowFor += v.tickEvery(); v.windowFor >= v.cfg.StallTimeout {
		return abusive(Stalled, "the connection's window stays zero")
	}
	for _, s := range v.streams {
		if v.stall(&s.flow, v.cfg.StallTimeout) {
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
	v.locked(func() { v.expireAll(&t) })
	t.end()
}

// expireAll needs mu.
func (v *Server) expireAll(t *Turn) {
	v.next = time.Time{}
	now := time.Now()
	var next time.Time
	for _, s := range v.streams {
		switch {
		case s.deadline.IsZero():
		case !s.deadline.After(now):
			s.deadline = time.Time{}
			s.expired(t)
		case next.IsZero() || s.deadline.Before(next):
			next = s.deadline
		}
	}
	if !next.IsZero() {
		v.schedule(next)
	}
}

// expired tells the decider that its time has come. It needs mu.
func (s *stream) expired(t *Turn) {
	e, attempt := s.decider.Expired()
	switch {
	case e == nil:
	case !attempt:
		s.fail(t, e)
	case s.phase == waiting || s.phase == sending:
		s.giveUp(t, e)
		s.failed(t, e)
	}
}

// pauses counts the time for which the client might send more of a body whose length it said, and does not;
// true when that is too long. It needs mu.
func (s *stream) pauses(every time.Duration) bool {
	if s.server.cfg.BodyTimeout <= 0 || s.came || s.recvEnded || s.length <= 0 || min(s.recvWindow, s.server.recvWindow) <= 0 || s.phase == replying {
		s.came, s.quiet = false, 0
		return false
	}
	s.quiet += every
	return s.quiet >= s.server.cfg.BodyTimeout
}
