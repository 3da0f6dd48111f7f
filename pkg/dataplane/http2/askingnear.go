package http2

import (
	"fmt"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// askingNear is an Asking as its Near.
type askingNear Asking

// Ready implements Near.
func (a *askingNear) Ready(t *Turn, _ uint64) {
	a.mu.Lock()
	if a.to != nil {
		(*Asking)(a).open(t, true)
	}
	a.mu.Unlock()
	wake(a.readable)
}

// Failed implements Near.
func (a *askingNear) Failed(_ *Turn, _ uint64, e *upstream.Error) {
	a.mu.Lock()
	if a.failed == nil {
		a.failed, a.to = e, nil
	}
	a.mu.Unlock()
	wake(a.readable)
	wake(a.writable)
}

// Response implements Near.
func (a *askingNear) Response(t *Turn, token uint64, r *message.Response, end bool) {
	a.mu.Lock()
	if r.Status < 200 {
		a.interims++
	}
	if a.interims > maxInterim {
		a.mu.Unlock()
		a.Failed(t, token, &upstream.Error{Reason: upstream.ProtocolError, NextHop: a.hop, Err: fmt.Errorf("more than %d interim responses", maxInterim)})
		return
	}
	a.heads = append(a.heads, message.Response{Status: r.Status, Fields: slices.Clone(r.Fields), Length: r.Length})
	a.whole = a.whole || end
	a.mu.Unlock()
	wake(a.readable)
}

// Data implements Near.
func (a *askingNear) Data(_ *Turn, _ uint64, p []byte, end bool) int {
	a.mu.Lock()
	defer wake(a.readable)
	defer a.mu.Unlock()
	a.whole = a.whole || end
	if a.over {
		return len(p)
	}
	a.body.push(p)
	return 0
}

// Trailers implements Near.
func (a *askingNear) Trailers(_ *Turn, _ uint64, fields []message.Field) {
	a.mu.Lock()
	a.trailers, a.whole = slices.Clone(fields), true
	a.mu.Unlock()
	wake(a.readable)
}

// Consumed implements Near.
func (a *askingNear) Consumed(_ *Turn, _ uint64, n int) {
	a.mu.Lock()
	a.ahead -= n
	a.mu.Unlock()
	wake(a.writable)
}
