package proxy

import (
	"testing"
	"unsafe"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// doneAsker has sent all of its request, which ends with trailers in the connection's memory.
type doneAsker struct {
	bridgeClient
	memory []byte
	asked  func()
}

func (a *doneAsker) read() ([]byte, error) { return nil, nil }

func (a *doneAsker) finished() []message.Field {
	a.asked()
	return []message.Field{{Name: "x-sum", Value: unsafe.String(&a.memory[0], len(a.memory))}}
}

// lastCall notes what a request ends with. Before that the client's connection has gone on to another one.
type lastCall struct {
	call
	before func()
	sum    string
}

func (c *lastCall) Finish(trailers []message.Field) error {
	c.before()
	c.sum = message.Fields(trailers).Get("x-sum")
	return nil
}

func (c *lastCall) End() {}

// TestTrailersOutliveTheRequest: once all of a request is known to have come, its client's connection may go on to the
// next one, and the request's own trailers are sent all the same.
func TestTrailersOutliveTheRequest(t *testing.T) {
	a := &doneAsker{memory: []byte("own")}
	b := &bridge{bridgeClient: a, sentBody: &clientBody{client: a}}
	b.body = &body{src: b.sentBody}
	a.asked = func() {
		if b.body.complete() {
			t.Error("the connection is asked for trailers that may be another request's")
		}
	}
	c := &lastCall{before: func() { copy(a.memory, "new") }}
	s := &sending{call: c}
	s.left.Store(1)
	b.upload(s, b.body.next())
	if c.sum != "own" {
		t.Errorf("sent %q", c.sum)
	}
}
