package http2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// The methods of this file implement side.

func (c *endpointConn) settingsTaken(t *Turn, first bool) {
	if first {
		c.seize()
		c.ready = true
		c.yield()
	}
	c.owner.connReady(t, c, first)
}

func (c *endpointConn) headers(t *Turn, h *headers) error {
	c.seize()
	c.pings = 0
	k := c.calls[h.id]
	if k == nil || k.answeredAll {
		defer c.yield()
		return c.lateHeaders(h)
	}
	answered, near, token := k.answered, k.near, k.nearToken
	k.heard = true
	c.yield()
	if answered {
		return c.trailers(t, h, near, token)
	}
	return c.head(t, h, near, token)
}

// lateHeaders is a list on a stream that is over, or never was. It needs mu.
func (c *endpointConn) lateHeaders(h *headers) error {
	if err := c.dec.Skip(h.block); err != nil {
		return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
	}
	if err := c.lateFrame("HEADERS", h.id); err != nil {
		return err
	}
	if c.late > 0 {
		c.late--
		return nil
	}
	return c.spend(Misbehaviour)
}

// head passes the head of an answer on. It is decoded without the lock, as the decoder is the reader's; the call may
// have ended by then.
func (c *endpointConn) head(t *Turn, h *headers, near Near, token uint64) error {
	err := c.dec.Response(h.block, &c.response)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	r := &c.response
	c.seize()
	k := c.calls[h.id]
	if k == nil || k.nearToken != token {
		c.yield()
		return nil
	}
	if err == nil {
		err = k.judge(r, h.end)
	}
	if err != nil {
		return c.violated(t, k, err)
	}
	if r.Status >= 200 {
		k.answered = true
	}
	if h.end {
		k.answerEnded(t)
	}
	c.earnAll()
	c.yield()
	near.Response(t, token, r, h.end)
	return nil
}

// trailers passes the end of an answer on, in the same way.
func (c *endpointConn) trailers(t *Turn, h *headers, near Near, token uint64) error {
	fields, err := c.dec.Trailers(h.block, c.fields)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	c.fields = fields
	c.seize()
	k := c.calls[h.id]
	if k == nil || k.nearToken != token {
		c.yield()
		return nil
	}
	if err == nil && (!h.end || k.length > 0) {
		err = errors.New("trailers that do not end the stream, or come too early")
	}
	if err != nil {
		return c.violated(t, k, err)
	}
	k.answerEnded(t)
	c.yield()
	near.Trailers(t, token, fields)
	return nil
}

// violated ends a call whose answer broke the rules. It needs mu by seize, and yields it: the Near is called without.
func (c *endpointConn) violated(t *Turn, k *call, err error) error {
	near, token := k.near, k.nearToken
	e := &upstream.Error{Reason: upstream.ProtocolError, NextHop: c.address, Err: err}
	c.cancel(t, k, http2.ErrCodeProtocol)
	spent := c.spend(Misbehaviour)
	c.yield()
	near.Failed(t, token, e)
	return spent
}

func (c *endpointConn) refuse(t *Turn, id uint32, code http2.ErrCode) error {
	c.seize()
	k := c.calls[id]
	if k == nil {
		defer c.yield()
		return c.spend(Misbehaviour)
	}
	return c.violated(t, k, fmt.Errorf("a frame breaks the rules: %s", code))
}

func (c *endpointConn) data(t *Turn, fh http2.FrameHeader, p []byte) error {
	c.seize()
	c.pings = 0
	if err := c.received(t, int(fh.Length)); err != nil {
		c.yield()
		return err
	}
	k := c.calls[fh.StreamID]
	if k == nil || k.answeredAll {
		defer c.yield()
		return c.lateFrame("DATA", fh.StreamID)
	}
	p, padding, err := unpad(fh, p)
	if err != nil {
		c.yield()
		return err
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if err := k.receive(int(fh.Length), len(p), end); err != nil {
		return c.violated(t, k, err)
	}
	if len(p) == 0 && !end {
		defer c.yield()
		// Nothing of it is passed on, so nothing else gives the padding back (RFC 9113 section 6.9.1).
		k.consumed(t, padding)
		return c.spend(EmptyFrames)
	}
	c.earn(WindowFlood, PingFlood)
	near, token, own := k.near, k.nearToken, k.token
	if end {
		k.answerEnded(t)
	}
	c.yield()
	n := near.Data(t, token, p, end)
	if !end {
		k.Consumed(t, own, n+padding)
	}
	return nil
}

// lateFrame is one on a stream that is over, which may have crossed our end of it, or that never was. It needs mu.
func (c *endpointConn) lateFrame(kind string, id uint32) error {
	if id >= c.nextID || id%2 == 0 {
		return protocolError(kind + " on a stream that never was")
	}
	return nil
}

func (c *endpointConn) reset(t *Turn, id uint32, code http2.ErrCode) error {
	c.seize()
	k := c.calls[id]
	if k == nil {
		defer c.yield()
		return c.lateFrame("RST_STREAM", id)
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
	c.yield()
	near.Failed(t, token, e)
	return nil
}

// goneAway gives back what the endpoint has not seen (RFC 9113 section 6.8).
func (c *endpointConn) goneAway(t *Turn, last uint32, code http2.ErrCode) {
	type lost struct {
		near  Near
		token uint64
	}
	var back []lost
	c.seize()
	c.leaving, c.goneLast = true, min(last, c.goneLast)
	for id, k := range c.calls {
		if id > c.goneLast {
			back = append(back, lost{k.near, k.nearToken})
			c.close(t, k)
		}
	}
	if len(c.calls) == 0 {
		c.quit(t)
	}
	useless := c.useless()
	c.yield()
	c.owner.connLeaves(t, c, useless)
	for _, l := range back {
		l.near.Failed(t, l.token, &upstream.Error{
			Reason: upstream.StreamRefused, NextHop: c.address, Unsent: true, Unanswered: true,
			Err: fmt.Errorf("the endpoint went away (%s) before it saw the request", code),
		})
	}
}

func (c *endpointConn) windowUpdated(t *Turn, id uint32, n int) (bool, error) {
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

func (c *endpointConn) initialWindowChanged(n int) bool {
	for _, k := range c.calls {
		if k.window += n; k.window > maxWindow {
			return false
		}
		c.list(&k.flow)
	}
	return true
}

func (c *endpointConn) last() uint32 { return 0 }
