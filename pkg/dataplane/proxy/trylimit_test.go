package proxy

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// lateCall is a call whose answer comes as it is broken off.
type lateCall struct {
	call
	broken chan struct{}
	once   sync.Once
	ended  bool
}

func (c *lateCall) Head() (*message.Response, error) {
	<-c.broken
	return &message.Response{Status: 200, Length: -1}, nil
}

func (c *lateCall) Break() { c.once.Do(func() { close(c.broken) }) }
func (c *lateCall) End()   { c.ended = true }

// TestAnswerAtTheLimit: an answer that comes as the time of its attempt runs out, and whose connection is closed for
// that, has not come: it would break off in its body.
func TestAnswerAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &lateCall{broken: make(chan struct{})}
		b := &bridge{open: func(*message.Request) (call, error) { return c, nil }}
		a, e := b.send(t.Context(), &endpoints.Lease{}, time.Second)
		if e == nil || e.Reason != upstream.TryTimeout {
			t.Errorf("answered %d, error %v", a.status, e)
		}
		if b.sent != nil || !c.ended {
			t.Error("the call goes on")
		}
	})
}
