package http2

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Asking is a request to an endpoint that a goroutine makes, which may wait: for
// a client that speaks another version of HTTP.
//
// One goroutine may send (Write, Finish) while another receives (Head, Read); End comes last, from
// either. Errors are *upstream.Error. What was received and not read is bounded by the stream's window.
type Asking struct {
	// hop is the endpoint. It is set once.
	hop netip.AddrPort
	// readable and writable wake who waits for them.
	readable, writable chan struct{}
	// turn is owned by who sends, reads by who receives; part is what Read gave last.
	turn, reads Turn
	part        []byte
	// read is how much Read gave, until the window grows.
	read int

	// mu guards all below. Under it only an Opener is called, which comes after it in the order of locks, as after a
	// client's connection.
	mu sync.Mutex
	// to is where the request waits for a place, with its head; nil when it has one or does not want one any more.
	to      Opener
	request *message.Request
	// far is where it goes then.
	far      Far
	farToken uint64
	// ahead is how much was written and has not left; sent: all was.
	ahead int
	sent  bool
	// heads are those of the answer that nobody has taken, interims how many came before the final one.
	heads    []message.Response
	interims int
	body     queue
	whole    bool
	trailers []message.Field
	// failed is why there is no more; nil while there may be. over: End was called.
	failed *upstream.Error
	over   bool
}

// askToken is the only token that an Asking has: it is used once.
const askToken = 1

// Ask sends the head of a request when it has a place on a connection, for which it waits until ctx ends. A patient
// one waits as those of Pool.Patient do, others only for a connection that is being made. Its error has Unsent.
func (p *Pool) Ask(ctx context.Context, m *message.Request, patient bool) (*Asking, error) {
	var to Opener = p
	if patient {
		to = p.Patient()
	}
	a := &Asking{hop: p.cfg.Address, to: to, request: m, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1), sent: m.Length == 0}
	a.mu.Lock()
	a.open(&a.turn, false)
	a.mu.Unlock()
	a.turn.flush()
	for {
		a.mu.Lock()
		far, failed := a.far, a.failed
		a.mu.Unlock()
		if failed != nil && far == nil {
			return nil, failed
		}
		if far != nil {
			return a, nil
		}
		select {
		case <-a.readable:
		case <-ctx.Done():
			if a.leave() {
				p.Cancel((*askingNear)(a), askToken)
				return nil, p.unplaced(ctx, patient)
			}
		}
	}
}

// unplaced is the error of a request that had no place when ctx ended.
func (p *Pool) unplaced(ctx context.Context, patient bool) *upstream.Error {
	e := &upstream.Error{Reason: upstream.EndOf(ctx), NextHop: p.cfg.Address, Unsent: true, Unanswered: true, Err: context.Cause(ctx)}
	switch {
	case e.Reason != upstream.Deadline:
	case patient:
		return p.Late(e.Err)
	default:
		e.Err = upstream.ErrNoConnection
	}
	return e
}

// open asks for a place. It needs mu.
func (a *Asking) open(t *Turn, waited bool) {
	far, token, err := a.to.Open(t, (*askingNear)(a), askToken, a.request, a.sent, waited)
	switch {
	case err != nil:
		a.failed, a.to = upstream.AsError(err), nil
	case far != nil:
		a.far, a.farToken, a.to = far, token, nil
	}
}

// leave notes that no place is wanted any more; false where the wait is over already, with a place or a failure.
func (a *Asking) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	waits := a.to != nil
	a.to = nil
	return waits
}

// Write sends a part of the body.
func (a *Asking) Write(p []byte) error {
	for len(p) > 0 {
		room, err := a.room()
		if err != nil {
			return err
		}
		n := min(room, len(p))
		a.mu.Lock()
		a.ahead += n
		a.mu.Unlock()
		left := a.far.Data(&a.turn, a.farToken, p[:n], false)
		(*askingNear)(a).Consumed(nil, askToken, left)
		a.turn.flush()
		p = p[n:]
	}
	return nil
}

// room waits until something can be sent.
func (a *Asking) room() (int, error) {
	for {
		a.mu.Lock()
		n, failed := writeAhead-a.ahead, a.failed
		a.mu.Unlock()
		switch {
		case failed != nil:
			return 0, failed
		case n > 0:
			return n, nil
		}
		<-a.writable
	}
}

// Finish ends the body.
func (a *Asking) Finish(trailers []message.Field) error {
	a.mu.Lock()
	a.sent = true
	a.mu.Unlock()
	if len(trailers) > 0 {
		a.far.Trailers(&a.turn, a.farToken, trailers)
	} else {
		a.far.Data(&a.turn, a.farToken, nil, true)
	}
	a.turn.flush()
	return nil
}

// Head waits for the next head: those of interim responses come first, each for itself. It is valid until Read.
func (a *Asking) Head() (*message.Response, error) {
	for {
		a.mu.Lock()
		if len(a.heads) > 0 {
			m := a.heads[0]
			a.heads = a.heads[1:]
			a.mu.Unlock()
			return &m, nil
		}
		failed := a.failed
		a.mu.Unlock()
		if failed != nil {
			return nil, failed
		}
		<-a.readable
	}
}

// Read gives the next part of the body, which is valid until the next call; nothing at its end.
func (a *Asking) Read() ([]byte, error) {
	if n := len(a.part); n > 0 {
		a.part = nil
		a.mu.Lock()
		a.body.skip(n)
		a.mu.Unlock()
		if a.read < growAfter {
			if a.read += n; a.read >= growAfter {
				n += growth(a.far)
			}
		}
		a.far.Consumed(&a.reads, a.farToken, n)
		a.reads.flush()
	}
	for {
		a.mu.Lock()
		if a.body.size > 0 {
			a.part = a.body.peek(chunkSize)
		}
		whole, failed := a.whole, a.failed
		a.mu.Unlock()
		switch {
		case len(a.part) > 0 || whole:
			return a.part, nil
		case failed != nil:
			return nil, failed
		}
		<-a.readable
	}
}

// Trailers are those of the response, after Read gave nothing.
func (a *Asking) Trailers() []message.Field {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trailers
}

var errBrokenOff = errors.New("the request was given up")

// Break ends all waits of the request, from any goroutine, and gives it up.
func (a *Asking) Break() {
	a.mu.Lock()
	if a.failed == nil {
		a.failed = &upstream.Error{Reason: upstream.ResetBeforeHeaders, NextHop: a.hop, Err: errBrokenOff}
	}
	a.mu.Unlock()
	wake(a.readable)
	wake(a.writable)
	var t Turn
	a.far.Reset(&t, a.farToken, nil)
	t.flush()
}

// End gives the request up where it is not over.
func (a *Asking) End() {
	a.mu.Lock()
	done := a.whole && a.sent
	a.over = true
	a.body.drop()
	a.mu.Unlock()
	if !done {
		a.Break()
	}
}
