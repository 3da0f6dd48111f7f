package http2

import (
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// doomed are the requests that are to end from outside. Their number is that of those who say so.
type doomed struct {
	mu   sync.Mutex // guards all below; it is taken last
	all  []sentence
	over bool
}

type sentence struct {
	ticket Ticket
	err    *upstream.Error
}

// doom has a request end soon, whatever locks the caller holds.
func (v *Server) doom(k Ticket, e *upstream.Error) {
	d := &v.doomed
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	d.all = append(d.all, sentence{k, e})
	if len(d.all) == 1 {
		v.writers.Go(v.judgement)
	}
}

func (v *Server) judgement() {
	d := &v.doomed
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
	t.End()
}

// pardon takes no more.
func (d *doomed) pardon() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
}

// FailEach ends each request for which why gives an error, as Ticket.Fail does, but at once. Exchange's rule
// holds for why; the method must not be called from within Handler or Exchange.
func (v *Server) FailEach(why func(Exchange) *upstream.Error) {
	var t Turn
	v.locked(func() {
		for _, s := range v.streams {
			if s.exchange == nil {
				continue
			}
			if e := why(s.exchange); e != nil {
				s.fail(&t, e)
			}
		}
	})
	t.End()
}
