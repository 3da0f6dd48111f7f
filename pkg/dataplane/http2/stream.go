package http2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// phase is where a request is, as the package documentation has it; answered is sending with stream.answered.
type phase uint8

const (
	unused phase = iota
	// deciding: the handler has not said yet where it goes.
	deciding
	// waiting: it waits for a place on a connection.
	waiting
	// sending: it is on a connection.
	sending
	// replying: we answer it ourselves, or have given it up.
	replying
)

// stream is one request of a client, the Near of its attempts. The mutex of its connection guards it.
type stream struct {
	server *Server
	// flow is the answer's way to the client.
	flow

	// token is 0 while it is not in use.
	token    uint64
	decider  Decider
	request  message.Request
	grpc     bool
	phase    phase
	deadline time.Time

	// attempt is the token that the present attempt knows, 0 for none. to is where it waits or went, far where it is.
	attempt  uint64
	to       Opener
	far      Far
	farToken uint64

	// The request's body: what may still come, what is to be given back of it, and what content-length lets come, -1 for anything.
	recvEnded        bool
	recvWindow, owed int
	length           int64
	// kept is all of the body while another attempt may be made; lost says that none can be.
	kept []byte
	lost bool
	// trailers follow it.
	trailers    []message.Field
	hasTrailers bool
	// received came, consumed left by the present attempt, credited was given back to the client.
	received, consumed, credited int64

	// answered: the final head was sent; passed: it was an endpoint's. interim counts those before it.
	answered  bool
	passed    bool
	interim   int
	sentBytes int64
	// grown is by how much the answer's window at the endpoint has grown.
	grown int
	// failure is the error of ours that the answer is; nil for none.
	failure *upstream.Error
	// held is a head that is not passed on yet; its Fields are ours. hold: there is one.
	held message.Response
	hold bool
	// quiet is for how long the client has not sent what it might of its body; came: some came since the last tick.
	quiet time.Duration
	came  bool
}

// maxInterim is how many 1xx responses an answer may have.
const maxInterim = 64

func (s *stream) begin(id uint32, token uint64) {
	v := s.server
	s.reset(id, v.peerWindow)
	s.token = token
	s.recvWindow, s.length = v.cfg.StreamWindow, -1
	s.lost = v.cfg.ReplayBytes < 0
}

// clear forgets the request; the memory for its lists and body is kept for the next one.
func (s *stream) clear() {
	s.reset(0, 0)
	s.token, s.attempt, s.phase = 0, 0, unused
	s.request = message.Request{Fields: emptied(s.request.Fields)}
	s.trailers = emptied(s.trailers)
	s.decider, s.to, s.far, s.farToken = nil, nil, nil, 0
	s.grpc, s.deadline = false, time.Time{}
	s.recvEnded, s.owed, s.hasTrailers = false, 0, false
	s.received, s.consumed, s.credited, s.sentBytes = 0, 0, 0, 0
	s.answered, s.passed, s.interim, s.grown, s.failure = false, false, 0, 0, nil
	s.unhold()
	s.quiet, s.came = 0, false
	s.unkeep()
	s.lost = false
}

// unhold forgets a head that was held.
func (s *stream) unhold() {
	if s.hold {
		s.hold = false
		s.held.Fields = emptied(s.held.Fields)
	}
}

// smallList is how many fields a stream that has ended keeps the room of.
const smallList = 64

// emptied gives the room of fields that are over, unless it is much: a client could have a lot of it kept on an idle connection.
func emptied(fields []message.Field) []message.Field {
	if cap(fields) > smallList {
		return nil
	}
	clear(fields)
	return fields[:0]
}

// replayable tells whether another attempt may be made.
func (s *stream) replayable() bool { return !s.lost && !s.answered && s.interim == 0 }

// smallBody is how much room for a body a stream that has ended keeps.
const smallBody = 4 << 10

// unkeep drops the kept body: no other attempt can be made.
func (s *stream) unkeep() {
	s.lost = true
	if cap(s.kept) > smallBody {
		s.kept = nil
	}
	s.kept = s.kept[:0]
}

// decide does what the handler said. It needs mu.
func (s *stream) decide(t *Turn, d Decision) {
	switch {
	case d.To != nil:
		s.to = d.To
		s.open(t, false)
	case d.Reply != nil:
		s.reply(t, d.Reply, nil)
	case d.Error != nil:
		s.fail(t, d.Error)
	case d.Later:
		s.phase = deciding
	default:
		s.fail(t, &upstream.Error{Reason: upstream.ProtocolError, Err: errors.New("nobody decided where the request goes")})
	}
}

// open makes an attempt. It needs mu.
func (s *stream) open(t *Turn, waited bool) {
	v := s.server
	v.tokens++
	s.attempt = v.tokens
	bare := s.recvEnded && len(s.kept) == 0 && !s.hasTrailers
	far, token, err := s.to.Open(t, s, s.attempt, &s.request, bare, waited)
	switch {
	case err != nil:
		s.failed(t, upstream.AsError(err))
	case far == nil:
		s.phase = waiting
	default:
		s.phase, s.far, s.farToken = sending, far, token
		s.consumed = 0
		if e := s.decider.Sent(); e != nil {
			s.fail(t, e)
		} else if !bare {
			s.resend(t)
		}
	}
}

// giveUp ends the attempt, whatever it has come to, because of e. It needs mu.
func (s *stream) giveUp(t *Turn, e *upstream.Error) {
	switch s.phase {
	case waiting:
		s.to.Cancel(s, s.attempt)
	case sending:
		s.far.Reset(t, s.farToken, e)
	default:
	}
	s.attempt = 0
	s.phase = replying
	s.unhold()
}

// sentEnd implements flowOwner.
func (s *stream) sentEnd(t *Turn) { s.maybeClose(t) }

// maybeClose closes the stream if both sides have ended, or if we have answered it ourselves. It needs mu.
func (s *stream) maybeClose(t *Turn) {
	if s.token == 0 || !s.ended {
		return
	}
	v := s.server
	switch {
	case s.recvEnded:
		v.close(t, s, false, s.failure)
	case s.phase == replying:
		if !s.lastBit() {
			// The client may stop sending (RFC 9113 section 8.1).
			v.send(t, appendReset(v.put().b, s.id, http2.ErrCodeNo))
		}
		v.close(t, s, true, s.failure)
	}
}

// lastBit tells whether what the client still sends is so little that to take it costs less than to stop it. A client
// that is stopped may take that for the answer: curl before 8 does, where the reset is there before it has sent all.
// One that pauses is stopped. It needs mu.
func (s *stream) lastBit() bool {
	return s.quiet == 0 && s.length > 0 && s.length <= int64(min(s.recvWindow, smallRest))
}

// smallRest is how long the rest of a body may be that is taken and dropped after the answer.
const smallRest = 64 << 10

// failed hears that an attempt came to nothing, and has the decider decide. It needs mu.
func (s *stream) failed(t *Turn, e *upstream.Error) {
	s.attempt = 0
	s.unhold()
	if e.DueTo(s.deadline) {
		e = e.Late(s.answered)
	}
	switch {
	case s.answered && s.end:
		// The answer is whole; what is missing is only the end of the request.
		s.phase = replying
		s.maybeClose(t)
		return
	case s.answered:
		s.phase = replying
		if d := s.decider.Failed(e, false); d.Error != nil {
			e = d.Error
		}
		s.fail(t, e)
		return
	}
	s.phase = deciding
	again := s.replayable()
	d := s.decider.Failed(e, again)
	if d == (Decision{}) || d.To != nil && !again {
		d = Decision{Error: e}
	}
	s.decide(t, d)
}

func (s *stream) setDeadline(at time.Time) {
	s.deadline = at
	if !at.IsZero() {
		s.server.schedule(at)
	}
}
