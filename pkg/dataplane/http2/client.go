package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/http2"

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
}

// clientOwner is what a Client tells its pool.
type clientOwner interface {
	// clientReady says that the endpoint's settings came, or changed.
	clientReady(t *Turn, c *Client)
	// wanted tells whether somebody waits for a place. It is called with the connection's lock held.
	wanted() bool
	// Flush looks for those who wait.
	Flusher
	// clientLeaves says that the connection takes no more calls.
	clientLeaves(t *Turn, c *Client)
}

func newClient(nc net.Conn, address netip.AddrPort, cfg *Config, owner clientOwner) *Client {
	c := &Client{address: address, owner: owner, calls: map[uint32]*call{}, nextID: 1, goneLast: maxID}
	c.init(nc, nil, cfg, c)
	return c
}

// run speaks HTTP/2 until the connection is over; every call has ended then.
func (c *Client) run(ctx context.Context) error {
	defer c.waitContext(ctx)()
	c.startTicks()
	c.mu.Lock()
	c.greet(&c.turn, append(c.put().b, Preface...), http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	c.mu.Unlock()
	c.turn.flush()
	err := c.link.run()
	c.mu.Lock()
	if c.failure != nil {
		err = c.failure
	}
	c.leaving = true
	c.mu.Unlock()
	c.owner.clientLeaves(&c.turn, c)
	c.failAll(&c.turn, err)
	return c.finish(&c.turn, err)
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
	e.Unsent = k.begins >= c.written
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
	c.mu.Lock()
	c.leaving = true
	if len(c.calls) == 0 {
		c.quit(&t)
	}
	c.mu.Unlock()
	t.flush()
}

// quitIfIdle closes the connection unless something is on it.
func (c *Client) quitIfIdle() {
	var t Turn
	c.mu.Lock()
	if len(c.calls) == 0 {
		c.leaving = true
		c.quit(&t)
	}
	c.mu.Unlock()
	t.flush()
}

// cut closes the connection now, with err for what is on it.
func (c *Client) cut(err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.kill()
	c.mu.Unlock()
}

func (c *Client) settled(t *Turn, first bool) {
	if first {
		c.mu.Lock()
		c.ready = true
		c.mu.Unlock()
	}
	c.owner.clientReady(t, c)
}

func (c *Client) headers(t *Turn, h *headers) error {
	c.mu.Lock()
	k := c.calls[h.id]
	if k == nil || k.answeredAll {
		defer c.mu.Unlock()
		if err := c.dec.Skip(h.block); err != nil {
			return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
		}
		if h.id >= c.nextID || h.id%2 == 0 {
			return protocolError("HEADERS on a stream that never was")
		}
		return c.spend(Misbehaviour)
	}
	answered, near, token := k.answered, k.near, k.nearToken
	k.heard = true
	c.mu.Unlock()
	if answered {
		return c.trailers(t, h, near, token)
	}
	err := c.dec.Response(h.block, &c.response)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	r := &c.response
	c.mu.Lock()
	if k = c.calls[h.id]; k == nil || k.nearToken != token {
		c.mu.Unlock()
		return nil
	}
	if err == nil {
		err = k.judge(r, h.end)
	}
	if err != nil {
		return c.wrong(t, k, err)
	}
	if r.Status >= 200 {
		k.answered = true
	}
	if h.end {
		k.respond(t)
	}
	c.earn(SettingsFlood, PingFlood, EmptyFrames, PriorityFlood, WindowFlood, UnknownFrames)
	c.mu.Unlock()
	near.Response(t, token, r, h.end)
	return nil
}

func (c *Client) trailers(t *Turn, h *headers, near Near, token uint64) error {
	fields, err := c.dec.Trailers(h.block, c.fields)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	c.fields = fields
	c.mu.Lock()
	k := c.calls[h.id]
	if k == nil || k.nearToken != token {
		c.mu.Unlock()
		return nil
	}
	if err == nil && (!h.end || k.length > 0) {
		err = errors.New("trailers that do not end the stream, or come too early")
	}
	if err != nil {
		return c.wrong(t, k, err)
	}
	k.respond(t)
	c.mu.Unlock()
	near.Trailers(t, token, fields)
	return nil
}

// wrong ends a call whose answer broke the rules. It needs mu, and leaves it.
func (c *Client) wrong(t *Turn, k *call, err error) error {
	near, token := k.near, k.nearToken
	e := &upstream.Error{Reason: upstream.ProtocolError, NextHop: c.address, Err: err}
	c.send(t, appendReset(c.put().b, k.id, http2.ErrCodeProtocol))
	c.close(t, k)
	spent := c.spend(Misbehaviour)
	c.mu.Unlock()
	near.Failed(t, token, e)
	return spent
}

func (c *Client) refuse(t *Turn, id uint32, code http2.ErrCode) error {
	c.mu.Lock()
	k := c.calls[id]
	if k == nil {
		defer c.mu.Unlock()
		return c.spend(Misbehaviour)
	}
	return c.wrong(t, k, fmt.Errorf("a frame breaks the rules: %s", code))
}

func (c *Client) data(t *Turn, fh http2.FrameHeader, p []byte) error {
	c.mu.Lock()
	if err := c.received(t, int(fh.Length)); err != nil {
		c.mu.Unlock()
		return err
	}
	k := c.calls[fh.StreamID]
	if k == nil || k.answeredAll {
		defer c.mu.Unlock()
		if fh.StreamID >= c.nextID || fh.StreamID%2 == 0 {
			return protocolError("DATA on a stream that never was")
		}
		return nil
	}
	p, padding, err := unpad(fh, p)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if err := k.take(int(fh.Length), len(p), end); err != nil {
		return c.wrong(t, k, err)
	}
	if len(p) == 0 && !end {
		defer c.mu.Unlock()
		return c.spend(EmptyFrames)
	}
	c.earn(WindowFlood, PingFlood)
	near, token, own := k.near, k.nearToken, k.token
	if end {
		k.respond(t)
	}
	c.mu.Unlock()
	n := near.Data(t, token, p, end)
	if !end {
		k.Consumed(t, own, n+padding)
	}
	return nil
}

func (c *Client) reset(t *Turn, id uint32, code http2.ErrCode) error {
	c.mu.Lock()
	k := c.calls[id]
	if k == nil {
		defer c.mu.Unlock()
		if id >= c.nextID || id%2 == 0 {
			return protocolError("RST_STREAM on a stream that never was")
		}
		return nil
	}
	near, token := k.near, k.nearToken
	e := &upstream.Error{
		Reason: upstream.ResetBeforeHeaders, NextHop: c.address, Unanswered: !k.heard,
		Err: http2.StreamError{StreamID: id, Code: code, Cause: errors.New("the endpoint reset the stream")},
	}
	switch {
	case k.answered:
		e.Reason = upstream.ResetMidBody
	case code == http2.ErrCodeRefusedStream:
		e.Reason, e.Unsent = upstream.StreamRefused, true
	case code == http2.ErrCodeProtocol:
		e.Reason = upstream.ProtocolError
	}
	c.close(t, k)
	c.mu.Unlock()
	near.Failed(t, token, e)
	return nil
}

// goneAway gives back what the endpoint has not seen (RFC 9113 section 6.8).
func (c *Client) goneAway(t *Turn, last uint32, code http2.ErrCode) {
	type lost struct {
		near  Near
		token uint64
	}
	var back []lost
	c.mu.Lock()
	c.leaving, c.goneLast, c.goneCode = true, min(last, c.goneLast), code
	for id, k := range c.calls {
		if id > c.goneLast {
			back = append(back, lost{k.near, k.nearToken})
			c.close(t, k)
		}
	}
	if len(c.calls) == 0 {
		c.quit(t)
	}
	c.mu.Unlock()
	c.owner.clientLeaves(t, c)
	for _, l := range back {
		l.near.Failed(t, l.token, &upstream.Error{
			Reason: upstream.StreamRefused, NextHop: c.address, Unsent: true, Unanswered: true,
			Err: fmt.Errorf("the endpoint went away (%s) before it saw the request", code),
		})
	}
}

func (c *Client) opened(t *Turn, id uint32, n int) (bool, error) {
	if id == 0 {
		c.refill(t)
		return true, nil
	}
	k := c.calls[id]
	if k == nil {
		return id < c.nextID && id%2 == 1, nil
	}
	if !c.widen(t, &k.flow, n) {
		return true, flowError("a stream's window is over 2^31-1")
	}
	return true, nil
}

func (c *Client) widened(n int) bool {
	for _, k := range c.calls {
		if k.window += n; k.window > maxWindow {
			return false
		}
		c.list(&k.flow)
	}
	return true
}

func (c *Client) last() uint32 { return 0 }

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
		if c.stall(&k.flow) {
			t.Add(failing{k.near, k.nearToken, &upstream.Error{
				Reason: upstream.ResetBeforeHeaders, NextHop: c.address, Unanswered: !k.heard,
				Err: errors.New("the endpoint does not read the request"),
			}})
			c.send(t, appendReset(c.put().b, k.id, http2.ErrCodeCancel))
			c.close(t, k)
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
