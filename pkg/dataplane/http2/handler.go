package http2

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Handler decides where requests go. It is called by the readers of clients'
// connections, with the connection's lock held: it must not block, and must
// call nothing of this package but what a Ticket has for "any goroutine", and that not before it returned.
type Handler interface {
	// Request gives the Decider that hears of everything that happens to a request, and what to do first. r is
	// valid, and may be changed, until Ended; its strings are the caller's for good.
	Request(t Ticket, r *message.Request) (Decider, Decision)
}

// Decider hears what becomes of one request, and decides. Its methods are called one after
// another, never at once, under the same rule as Handler's.
type Decider interface {
	// Sent says that a place on a connection was had, and the request goes out now. An error ends it.
	Sent() *upstream.Error
	// Response has the final head of an answer, which may be changed, before it is passed on. end: it has no body
	// and no trailers, as a gRPC response without messages. The zero Decision passes it on, Hold keeps it until its
	// body begins or its trailers have come; anything else gives this answer up.
	Response(r *message.Response, end bool) Decision
	// Trailers ends an answer. What is not the zero Decision gives up an answer that was held.
	Trailers(fields []message.Field) Decision
	// Failed says that an attempt failed; where another one may be made, again tells so: the client has seen nothing
	// of an answer, and nothing of the request's body is lost. A Decision with nothing in it passes e on to the client.
	Failed(e *upstream.Error, again bool) Decision
	// Expired says that the time of SetDeadline has come, and gives why the request is over; nil goes on. attempt:
	// not the request is over but the attempt, which has failed so.
	Expired() (e *upstream.Error, attempt bool)
	// Ended says that the request is over, and is the last call.
	Ended(o Outcome)
}

// Decision is what to do with a request: exactly one of its fields, or none.
type Decision struct {
	// To sends it there.
	To Opener
	// Reply answers it.
	Reply *Reply
	// Error answers it with an error of ours.
	Error *upstream.Error
	// Later leaves the decision to a call of Ticket.Resume.
	Later bool
	// Hold is for Decider.Response.
	Hold bool
}

// Outcome is how a request ended.
type Outcome struct {
	// Received and Sent are bytes of the bodies from and to the client.
	Received, Sent int64
	// Err is why it failed; nil where the client got a whole answer of the endpoint's or a Reply.
	Err *upstream.Error
	// Answered: the head of an endpoint's answer was passed on.
	Answered bool
}

// Opener is where requests can be sent: a *Pool, or the relay of another protocol.
type Opener interface {
	// Open sends the head of a request, which it does not keep, at once or when there is a place on a connection.
	// In the first case far is where the rest goes. In the second it is nil, and near hears Ready (then it calls
	// Open again, with waited set) or Failed. An error is an *upstream.Error with Unsent. Open must not block. end: there is no body.
	Open(t *Turn, near Near, token uint64, r *message.Request, end, waited bool) (far Far, farToken uint64, err error)
	// Cancel takes back what waits for a place.
	Cancel(near Near, token uint64)
}

// Near is the side of an exchange that made the request, as the side that
// answers it sees it. Calls come without any lock held that Far's methods
// take. None blocks. A token that is not in use any more makes each do nothing:
// that is how the two sides, which end at times of their own, need not wait for each other.
type Near interface {
	// Ready says that it is worth calling Open again.
	Ready(t *Turn, token uint64)
	// Failed says that the attempt is over without an end of the answer.
	Failed(t *Turn, token uint64, e *upstream.Error)
	// Response has the head of an answer, 1xx ones included.
	Response(t *Turn, token uint64, r *message.Response, end bool)
	// Data has some of the answer's body, which it copies. It gives how much has left already; the rest is told to Far.Consumed.
	Data(t *Turn, token uint64, p []byte, end bool) int
	// Trailers ends the answer.
	Trailers(t *Turn, token uint64, fields []message.Field)
	// Consumed says that n bytes of the request's body have left.
	Consumed(t *Turn, token uint64, n int)
}

// Far is the side that answers, as the one that made the request sees it. Its
// methods may be called with the caller's lock held: a Far calls no Near from within them.
type Far interface {
	// Data has some of the request's body, which it copies. It gives how much has left already; the rest is told to Near.Consumed.
	Data(t *Turn, token uint64, p []byte, end bool) int
	// Trailers ends the request.
	Trailers(t *Turn, token uint64, fields []message.Field)
	// Consumed says that n bytes of the answer's body have left.
	Consumed(t *Turn, token uint64, n int)
	// Reset gives the request up, and says why.
	Reset(t *Turn, token uint64, why *upstream.Error)
}

// Ticket names a request for as long as it lives; afterwards its methods do nothing.
type Ticket struct {
	stream *stream
	token  uint64
}

// Resume decides after a Decision that said Later, unless the request has ended: then it gives false, and does
// not call decide. What that gives does not count where it is not wanted: the request was answered, and
// Ended comes. Resume may be called from any goroutine, but not from within a call of Handler or
// Decider, whose rule holds for decide.
func (k Ticket) Resume(decide func(wanted bool) Decision) bool {
	var t Turn
	v := k.stream.server
	alive := false
	v.locked(func() {
		if alive = k.stream.token == k.token; !alive {
			return
		}
		wanted := k.stream.phase == deciding
		if d := decide(wanted); wanted {
			k.stream.decide(&t, d)
		}
	})
	t.end()
	return alive
}

// Fail ends the request with e: with an answer where none has begun, or breaks it off. It may be called
// from anywhere, and does so soon, in a goroutine of the connection's.
func (k Ticket) Fail(e *upstream.Error) { k.stream.server.failSoon(k, e) }

// These may only be called from within Handler and Decider.

// SetDeadline has Expired called about at that time; the zero time never.
func (k Ticket) SetDeadline(at time.Time) { k.stream.setDeadline(at) }

// Complete tells whether all of the request has come.
func (k Ticket) Complete() bool { return k.stream.recvEnded }

// Answered tells whether the head of an endpoint's answer was passed on.
func (k Ticket) Answered() bool { return k.stream.passed }

// Replayable tells whether another attempt may be made: the client has seen nothing of an answer, and all that
// has come of the request is kept.
func (k Ticket) Replayable() bool { return k.stream.replayable() }

// Reply is an answer of our own.
type Reply struct {
	Status int
	Fields []message.Field
	Body   string
}
