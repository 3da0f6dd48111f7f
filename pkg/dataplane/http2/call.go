package http2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// call is one request on a connection to an endpoint: the Far of an attempt.
// The mutex of its connection guards it. It belongs to that connection for ever
// and is used again and again, each time with another token.
type call struct {
	conn *endpointConn
	// flow is the request's way to the endpoint.
	flow
	token     uint64
	near      Near
	nearToken uint64

	// headless: the answer has no body, whatever its content-length says (HEAD).
	headless bool
	// heard: something of the answer came. answered: the final head. answeredAll: its end.
	heard, answered, answeredAll bool
	// recvWindow is what the endpoint may still send, owed what is to be given back of it.
	recvWindow, owed int
	// length is what content-length lets come, -1 for anything.
	length int64
	// begins is where its HEADERS stand in all that the connection ever wrote: what the socket has not taken up to there
	// was never sent.
	begins uint64
}

func (k *call) begin(id uint32, token uint64) {
	k.reset(id, k.conn.peerWindow)
	k.token = token
	k.recvWindow, k.length = k.conn.initial, -1
}

func (k *call) clear() {
	k.reset(0, 0)
	k.token, k.near, k.nearToken = 0, nil, 0
	k.headless, k.heard, k.answered, k.answeredAll = false, false, false, false
	k.owed = 0
}

// judge tells what is wrong with a head in the place where it came, and notes how long its body may be. It needs mu.
func (k *call) judge(r *message.Response, end bool) error {
	r.DropLength()
	if r.Status < 200 {
		if end {
			return errors.New("an interim response ends the stream")
		}
		return nil
	}
	bodiless := k.headless || r.Status == 204 || r.Status == 304
	switch {
	case end && !bodiless && r.Length > 0:
		return fmt.Errorf("content-length is %d, and no body comes", r.Length)
	case bodiless:
		k.length = 0
		r.Length = 0
	default:
		k.length = r.Length
		if end {
			r.Length = 0
		}
	}
	return nil
}

// receive notes data that came: size with its padding, n without. An error is a broken rule. It needs mu.
func (k *call) receive(size, n int, end bool) error {
	if !k.answered {
		return errors.New("data before the head of the answer")
	}
	if k.recvWindow -= size; k.recvWindow < 0 {
		return errors.New("more data than the stream's window allows")
	}
	if k.length >= 0 {
		if k.length -= int64(n); k.length < 0 || end && k.length > 0 {
			return errors.New("the body is not as long as content-length says")
		}
	}
	return nil
}

// answerEnded notes the end of the answer. It needs mu.
func (k *call) answerEnded(t *Turn) {
	k.answeredAll = true
	if k.ended {
		k.conn.close(t, k)
	}
}

// Data implements Far.
func (k *call) Data(t *Turn, token uint64, p []byte, end bool) int {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.guard()
	if k.token != token {
		return len(p)
	}
	return c.sendData(t, &k.flow, p, end)
}

// Trailers implements Far.
func (k *call) Trailers(t *Turn, token uint64, fields []message.Field) {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.guard()
	if k.token == token {
		c.sendTrailers(t, &k.flow, fields)
	}
}

// Consumed implements Far.
func (k *call) Consumed(t *Turn, token uint64, n int) {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.guard()
	if k.token == token {
		k.consumed(t, n)
	}
}

// consumed gives n bytes of the stream's window back, when that is worth a frame. It needs mu.
func (k *call) consumed(t *Turn, n int) {
	c := k.conn
	if k.answeredAll {
		return
	}
	// Half of the least that the window ever is.
	if k.owed += n; k.owed >= c.initial/2 {
		c.send(t, appendWindowUpdate(c.put().b, k.id, k.owed))
		k.recvWindow += k.owed
		k.owed = 0
	}
}

// growAfter is how much of an answer its client must have taken before the window grows: most answers are shorter.
const growAfter = 16 << 10

// growth is by how much the window of an answer from far may grow, by that much more being told to Consumed than was consumed.
func growth(far Far) int {
	if k, ok := far.(*call); ok {
		return k.conn.cfg.StreamWindow - k.conn.initial
	}
	return 0
}

// Reset implements Far.
func (k *call) Reset(t *Turn, token uint64, _ *upstream.Error) {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.guard()
	if k.token == token {
		c.cancel(t, k, http2.ErrCodeCancel)
	}
}

// sentSome implements flowOwner. The Near must not be called under this lock, so the turn tells it when none is held.
func (k *call) sentSome(t *Turn, n int) {
	t.credits = append(t.credits, credit{k.near, k.nearToken, n})
}

// sentEnd implements flowOwner.
func (k *call) sentEnd(t *Turn) {
	if k.answeredAll {
		k.conn.close(t, k)
	}
}
