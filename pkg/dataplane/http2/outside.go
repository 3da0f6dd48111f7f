package http2

import (
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// outsideFails are the requests that Ticket.Fail is to end. Who calls that may hold any lock, so they wait here for a
// goroutine that holds none. Each request has at most a few callers, which bounds them.
type outsideFails struct {
	mu  sync.Mutex // guards all below; it is taken last
	all []outsideFail
	// over: the connection has ended, and takes no more.
	over bool
}

// outsideFail is one of them, with the error that ends it.
type outsideFail struct {
	ticket Ticket
	err    *upstream.Error
}

// failSoon has a request end soon, whatever locks the caller holds.
func (v *Server) failSoon(k Ticket, e *upstream.Error) {
	d := &v.outside
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	d.all = append(d.all, outsideFail{k, e})
	if len(d.all) == 1 {
		v.writers.Go(v.failOutside)
	}
}

// failOutside ends all that wait. A request may have ended meanwhile: its token is another one then.
func (v *Server) failOutside() {
	d := &v.outside
	d.mu.Lock()
	all := d.all
	d.all = nil
	d.mu.Unlock()
	var t Turn
	v.locked(func() {
		for _, s := range all {
			if s.ticket.stream.token == s.ticket.token {
				s.ticket.stream.fail(&t, s.err)
			}
		}
	})
	t.end()
}

// close takes no more, so that the connection can wait for its goroutines.
func (d *outsideFails) close() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
}

// FailEach ends each request for which why gives an error, as Ticket.Fail does, but at once. Decider's rule
// holds for why; the method must not be called from within Handler or Decider.
func (v *Server) FailEach(why func(Decider) *upstream.Error) {
	var t Turn
	v.locked(func() {
		for _, s := range v.streams {
			if s.decider == nil {
				continue
			}
			if e := why(s.decider); e != nil {
				s.fail(&t, e)
			}
		}
	})
	t.end()
}
