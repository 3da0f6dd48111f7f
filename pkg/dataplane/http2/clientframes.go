package http2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func (c *Client) settled(t *Turn, first bool) {
	if first {
		c.hold()
		c.ready = true
		c.unhold()
	}
	c.owner.clientReady(t, c, first)
}

func (c *Client) headers(t *Turn, h *headers) error {
	c.hold()
	c.pings = 0
	k := c.calls[h.id]
	if k == nil || k.answeredAll {
		defer c.unhold()
		if err := c.dec.Skip(h.block); err != nil {
			return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
		}
		if h.id >= c.nextID || h.id%2 == 0 {
			return protocolError("HEADERS on a stream that never was")
		}
		if c.late > 0 {
			c.late--
			return nil
		}
		return c.spend(Misbehaviour)
	}
	answered, near, token := k.answered, k.near, k.nearToken
	k.heard = true
	c.unhold()
	if answered {
		return c.trailers(t, h, near, token)
	}
	err := c.dec.Response(h.block, &c.response)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	r := &c.response
	c.hold()
	if k = c.calls[h.id]; k == nil || k.nearToken != token {
		c.unhold()
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
	c.unhold()
	near.Response(t, token, r, h.end)
	return nil
}

func (c *Client) trailers(t *Turn, h *headers, near Near, token uint64) error {
	fields, err := c.dec.Trailers(h.block, c.fields)
	if lost := lostCompression(err); lost != nil {
		return lost
	}
	c.fields = fields
	c.hold()
	k := c.calls[h.id]
	if k == nil || k.nearToken != token {
		c.unhold()
		return nil
	}
	if err == nil && (!h.end || k.length > 0) {
		err = errors.New("trailers that do not end the stream, or come too early")
	}
	if err != nil {
		return c.wrong(t, k, err)
	}
	k.respond(t)
	c.unhold()
	near.Trailers(t, token, fields)
	return nil
}

// wrong ends a call whose answer broke the rules. It needs mu, and leaves it.
func (c *Client) wrong(t *Turn, k *call, err error) error {
	near, token := k.near, k.nearToken
	e := &upstream.Error{Reason: upstream.ProtocolError, NextHop: c.address, Err: err}
	c.cancel(t, k, http2.ErrCodeProtocol)
	spent := c.spend(Misbehaviour)
	c.unhold()
	near.Failed(t, token, e)
	return spent
}

func (c *Client) refuse(t *Turn, id uint32, code http2.ErrCode) error {
	c.hold()
	k := c.calls[id]
	if k == nil {
		defer c.unhold()
		return c.spend(Misbehaviour)
	}
	return c.wrong(t, k, fmt.Errorf("a frame breaks the rules: %s", code))
}

func (c *Client) data(t *Turn, fh http2.FrameHeader, p []byte) error {
	c.hold()
	c.pings = 0
	if err := c.received(t, int(fh.Length)); err != nil {
		c.unhold()
		return err
	}
	k := c.calls[fh.StreamID]
	if k == nil || k.answeredAll {
		defer c.unhold()
		if fh.StreamID >= c.nextID || fh.StreamID%2 == 0 {
			return protocolError("DATA on a stream that never was")
		}
		return nil
	}
	p, padding, err := unpad(fh, p)
	if err != nil {
		c.unhold()
		return err
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if err := k.take(int(fh.Length), len(p), end); err != nil {
		return c.wrong(t, k, err)
	}
	if len(p) == 0 && !end {
		defer c.unhold()
		// Nothing of it is passed on, so nothing else gives the padding back (RFC 9113 section 6.9.1).
		k.consumed(t, padding)
		return c.spend(EmptyFrames)
	}
	c.earn(WindowFlood, PingFlood)
	near, token, own := k.near, k.nearToken, k.token
	if end {
		k.respond(t)
	}
	c.unhold()
	n := near.Data(t, token, p, end)
	if !end {
		k.Consumed(t, own, n+padding)
	}
	return nil
}

func (c *Client) reset(t *Turn, id uint32, code http2.ErrCode) error {
	c.hold()
	k := c.calls[id]
	if k == nil {
		defer c.unhold()
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
	c.unhold()
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
	c.hold()
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
	useless := c.useless()
	c.unhold()
	c.owner.clientLeaves(t, c, useless)
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
