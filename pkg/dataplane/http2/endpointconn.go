package http2

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// endpointConn is our side, the client's, of a connection to an endpoint.
//
//	dialled ──settings came──▶ serving ──GOAWAY, retired, ids used up──▶ leaving ──last call ended──▶ closed
//	   └───────────────────────────┴────────────── broken ──────────────────┴───────────────────────▶ closed
type endpointConn struct {
	link
	address netip.AddrPort
	// owner is told what becomes of the connection, without its lock held but for wanted.
	owner connOwner

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
	// goneLast is the last stream that the endpoint's GOAWAY said it would serve.
	goneLast uint32
	idleFor  time.Duration
	// late is how many header lists may come on streams that we reset: the endpoint may have answered already.
	late int
}

// connOwner is what an endpointConn tells its pool.
type connOwner interface {
	// connReady says that the endpoint's settings came, for the first time or again.
	connReady(t *Turn, c *endpointConn, first bool)
	// wanted tells whether somebody waits for a place. It is called with the connection's lock held.
	wanted() bool
	// Flush gives the places there are to those who wait.
	flusher
	// connLeaves says that the connection takes no more calls. useless is the error of one that the endpoint let
	// go before it carried any; nil for any other.
	connLeaves(t *Turn, c *endpointConn, useless *upstream.Error)
}

func newEndpointConn(nc net.Conn, address netip.AddrPort, cfg *Config, owner connOwner) *endpointConn {
	c := &endpointConn{address: address, owner: owner, calls: map[uint32]*call{}, nextID: 1, goneLast: maxID}
	c.init(nc, nil, cfg, c)
	c.soon, c.listens = soonPings, true
	c.initial = min(c.initial, firstWindow)
	return c
}

// run speaks HTTP/2 until the connection is over; every call has ended then.
func (c *endpointConn) run(ctx context.Context) error {
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
	// Who hears of the end may go on to another connection at once.
	c.vacate()
	c.owner.connLeaves(&c.turn, c, useless)
	c.failAll(&c.turn, err)
	return c.finish(&c.turn, err)
}

func (c *endpointConn) speak() (err error) {
	defer c.caught(&err)
	c.seize()
	c.greet(&c.turn, append(c.put().b, preface...), http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	c.yield()
	c.turn.flush()
	return c.link.run()
}

// useless is the error of a connection that the endpoint lets go before it carried a call; nil where it did. It needs mu.
func (c *endpointConn) useless() *upstream.Error {
	if c.nextID > 1 {
		return nil
	}
	return &upstream.Error{
		Reason: upstream.ConnectFailed, NextHop: c.address, Unsent: true, Unanswered: true,
		Err: errors.New("connected, and let go before it carried a request"),
	}
}

// failAll ends all calls because the connection did.
func (c *endpointConn) failAll(t *Turn, err error) {
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

// broken is the error of a call whose connection ended with err. Its Unsent holds only where the socket took nothing of
// the request. It needs mu.
func (c *endpointConn) broken(k *call, err error) *upstream.Error {
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
func (c *endpointConn) open(t *Turn, near Near, token uint64, r *message.Request, end bool) (*call, uint64, error) {
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
	k := c.newCall()
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
func (c *endpointConn) room() bool {
	return c.ready && !c.leaving && !c.dead && uint64(len(c.calls)) < uint64(c.peerStreams)
}

// full tells whether it carries all the calls that the endpoint allows.
func (c *endpointConn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.leaving && !c.dead && uint64(len(c.calls)) >= uint64(c.peerStreams)
}

// empty tells whether it carries nothing.
func (c *endpointConn) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) == 0
}

// barred tells whether the endpoint allows no stream at all now.
func (c *endpointConn) barred() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.leaving && !c.dead && c.peerStreams == 0
}

// places is how many calls may be opened, up to most.
func (c *endpointConn) places(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.room() {
		return 0
	}
	return int(min(uint64(most), uint64(c.peerStreams)-uint64(len(c.calls))))
}

// newCall takes a call into use, with the next id. It needs mu.
func (c *endpointConn) newCall() *call {
	var k *call
	if n := len(c.free); n > 0 {
		k = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		k = &call{conn: c}
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
func (c *endpointConn) close(t *Turn, k *call) {
	delete(c.calls, k.id)
	k.clear()
	if !k.listed && len(c.free) < maxFree {
		c.free = append(c.free, k)
	}
	if c.owner.wanted() {
		t.add(c.owner)
	}
	if c.leaving && len(c.calls) == 0 {
		c.quit(t)
	}
}

// cancel resets a call. It needs mu.
func (c *endpointConn) cancel(t *Turn, k *call, code http2.ErrCode) {
	c.send(t, appendReset(c.put().b, k.id, code))
	// A head and trailers.
	c.late += 2
	c.close(t, k)
}
