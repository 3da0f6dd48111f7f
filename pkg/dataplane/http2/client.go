package http2

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/linger"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Client is the client's side of a connection to an endpoint.
//
//	dialled ──settings came──▶ serving ──GOAWAY, retired, ids used up──▶ leaving ──last call ended──▶ closed
//	   └───────────────────────────┴────────────── broken ──────────────────┴───────────────────────▶ closed
type Client struct {
	link
	address netip.AddrPort
	// owner is told what becomes of the connection, without its lock held.
	owner clientOwner

	// owned by the reader
	response message.Response
	fields   []message.Field

	// guarded by mu
	calls  map[uint32]*call
	free   []*call
	nextID uint32
	tokens uint64
	// ready: the endpoint's settings came. leaving: no new calls.
	ready, leaving bool
	// goneLast and goneCode are what the endpoint's GOAWAY said.
	goneLast uint32
	goneCode http2.ErrCode
	idleFor  time.Duration
	// late is how many lists may come on streams that we reset: the endpoint may have answered already.
	late int
}

// clientOwner is what a Client tells its pool.
type clientOwner interface {
	// clientReady says that the endpoint's settings came, for the first time or again.
	clientReady(t *Turn, c *Client, first bool)
	// wanted tells whether somebody waits for a place. It is called with the connection's lock held.
	wanted() bool
	// Flush looks for those who wait.
	Flusher
	// clientLeaves says that the connection takes no more calls. useless is the error of one that the endpoint let
	// go before it carried any; nil for any other.
	clientLeaves(t *Turn, c *Client, useless *upstream.Error)
}

func newClient(nc net.Conn, address netip.AddrPort, cfg *Config, owner clientOwner) *Client {
	c := &Client{address: address, owner: owner, calls: map[uint32]*call{}, nextID: 1, goneLast: maxID}
	c.init(nc, nil, cfg, c)
	c.soon, c.listens = soonPings, true
	c.initial = min(c.initial, firstWindow)
	return c
}

// run speaks HTTP/2 until the connection is over; every call has ended then.
func (c *Client) run(ctx context.Context) error {
	defer c.waitContext(ctx)()
	c.startTicks()
	err := c.speak()
	var useless *upstream.Error
	c.mu.Lock()
	if c.failure != nil {
		err = c.failure
	} else {
		useless = c.useless()
	}
	c.leaving = true
	c.mu.Unlock()
	c.owner.clientLeaves(&c.turn, c, useless)
	c.failAll(&c.turn, err)
	return c.finish(&c.turn, err)
}

func (c *Client) speak() (err error) {
	defer c.caught(&err)
	c.hold()
	c.greet(&c.turn, append(c.put().b, Preface...), http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	c.unhold()
	c.turn.flush()
	return c.link.run()
}

// useless is the error of a connection that the endpoint lets go before it carried a call; nil where it did. It needs mu.
func (c *Client) useless() *upstream.Error {
	if c.nextID > 1 {
		return nil
	}
	return &upstream.Error{
		Reason: upstream.ConnectFailed, NextHop: c.address, Unsent: true, Unanswered: true,
		Err: errors.New("connected, and let go before it carried a request"),
	}
}

// failAll ends all calls because the connection did.
func (c *Client) failAll(t *Turn, err error) {
	for {
		c.mu.Lock()
		var k *call
		for _, k = range c.calls {
			break
		}
		if k == nil {
			c.mu.Unlock()
			return
		}
		e := c.broken(k, err)
		near, token := k.near, k.nearToken
		c.close(t, k)
		c.mu.Unlock()
		near.Failed(t, token, e)
	}
}

// broken is the error of a call whose connection ended with err. It needs mu.
func (c *Client) broken(k *call, err error) *upstream.Error {
	e := &upstream.Error{Reason: upstream.ResetBeforeHeaders, NextHop: c.address, Unanswered: !k.heard, Err: err}
	if known, ok := errors.AsType[*upstream.Error](err); ok {
		e.Reason, e.Err = known.Reason, known.Err
		return e
	}
	e.Unsent = k.begins >= c.reach
	if _, ok := errors.AsType[*ConnError](err); ok {
		e.Reason = upstream.ProtocolError
	}
	if k.answered {
		e.Reason = upstream.ResetMidBody
	}
	if errors.Is(err, io.EOF) {
		e.Err = errors.New("the endpoint closed the connection")
	}
	return e
}

// open begins a call if there is room; nil where there is not. It may be called with a Near's lock held.
func (c *Client) open(t *Turn, near Near, token uint64, r *message.Request, end bool) (*call, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.guard()
	if !c.room() {
		return nil, 0, nil
	}
	if r.Protocol != "" && !c.peerConnect {
		return nil, 0, &upstream.Error{
			Reason: upstream.UpgradeFailed, NextHop: c.address, Unsent: true, Unanswered: true,
			Err: errors.New("the endpoint does not take extended CONNECT (RFC 8441)"),
		}
	}
	k := c.take()
	k.near, k.nearToken = near, token
	k.headless = r.Method == "HEAD"
	k.begins = c.added + uint64(c.waiting())
	c.idleFor = 0
	o := c.put()
	at := len(o.b)
	b := c.enc.AppendRequest(append(o.b, make([]byte, headLen)...), r)
	c.send(t, finishHeaders(b, at, k.id, end, c.peerFrame))
	k.end, k.ended = end, end
	return k, k.token, nil
}

// room tells whether a call can be opened. It needs mu.
func (c *Client) room() bool {
	return c.ready && !c.leaving && !c.dead && uint64(len(c.calls)) < uint64(c.peerStreams)
}

// full tells whether it carries all the calls that the endpoint allows.
func (c *Client) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.leaving && !c.dead && uint64(len(c.calls)) >= uint64(c.peerStreams)
}

// empty tells whether it carries nothing.
func (c *Client) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) == 0
}

// barred tells whether the endpoint allows no stream at all now.
func (c *Client) barred() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.leaving && !c.dead && c.peerStreams == 0
}

// places is how many calls may be opened, up to most.
func (c *Client) places(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.room() {
		return 0
	}
	return int(min(uint64(most), uint64(c.peerStreams)-uint64(len(c.calls))))
}

// take makes a call with the next id. It needs mu.
func (c *Client) take() *call {
	var k *call
	if n := len(c.free); n > 0 {
		k = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		k = &call{client: c}
		k.owner = k
	}
	c.tokens++
	k.begin(c.nextID, c.tokens)
	c.calls[k.id] = k
	if c.nextID += 2; c.nextID > maxID {
		c.leaving = true
	}
	return k
}

// close takes a call off the books. It needs mu.
func (c *Client) close(t *Turn, k *call) {
	delete(c.calls, k.id)
	k.clear()
	if !k.listed && len(c.free) < maxFree {
		c.free = append(c.free, k)
	}
	if c.owner.wanted() {
		t.Add(c.owner)
	}
	if c.leaving && len(c.calls) == 0 {
		c.quit(t)
	}
}

// cancel resets a call. It needs mu.
func (c *Client) cancel(t *Turn, k *call, code http2.ErrCode) {
	c.send(t, appendReset(c.put().b, k.id, code))
	// A head and trailers.
	c.late += 2
	c.close(t, k)
}

// quit ends a connection that is not needed. It needs mu.
func (c *Client) quit(t *Turn) {
	if c.failure != nil {
		return
	}
	c.failure = errClosed
	c.send(t, appendGoAway(c.put().b, 0, http2.ErrCodeNo, ""))
	t.Add(quitting{c})
}

type quitting struct{ c *Client }

// Flush makes the reader end after everything was written.
func (q quitting) Flush(t *Turn) {
	q.c.Flush(t)
	_ = q.c.nc.SetReadDeadline(past)
}

// leave takes no new calls and closes the connection when those on it have ended.
func (c *Client) leave() {
	var t Turn
	c.locked(func() {
		c.leaving = true
		if len(c.calls) == 0 {
			c.quit(&t)
		}
	})
	t.flush()
}

// quitIfIdle closes the connection unless something is on it.
func (c *Client) quitIfIdle() {
	var t Turn
	c.locked(func() {
		if len(c.calls) == 0 {
			c.leaving = true
			c.quit(&t)
		}
	})
	t.flush()
}

// idleTime is how long a connection may be without calls.
const idleTime = time.Minute

func (c *Client) tick(t *Turn, _ time.Time) error {
	if len(c.calls) == 0 {
		if c.idleFor += c.tickEvery(); c.idleFor >= idleTime {
			c.leaving = true
			return &ConnError{Code: http2.ErrCodeNo, Text: "idle"}
		}
		return nil
	}
	c.idleFor = 0
	for _, k := range c.calls {
		limit := c.cfg.StallTimeout
		if k.answeredAll {
			// An endpoint that does not want the rest ought to say so (RFC 9113 section 8.1); nobody waits for it.
			limit = min(limit, linger.Silence)
		}
		if c.stall(&k.flow, limit) {
			t.Add(failing{k.near, k.nearToken, &upstream.Error{
				Reason: upstream.ResetBeforeHeaders, NextHop: c.address, Unanswered: !k.heard,
				Err: errors.New("the endpoint does not read the request"),
			}})
			c.cancel(t, k, http2.ErrCodeCancel)
		}
	}
	return nil
}

// failing tells a Near that its call failed, when no lock is held.
type failing struct {
	near  Near
	token uint64
	err   *upstream.Error
}

// Flush tells it.
func (f failing) Flush(t *Turn) { f.near.Failed(t, f.token, f.err) }
