package http2

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// TestManyFieldsAreNotKept: an idle connection does not keep the room that requests with many fields took.
func TestManyFieldsAreNotKept(t *testing.T) {
	r := startRelay(t, &relayRig{cfg: Config{MaxHeaderFields: 1 << 20}}, scripted(t, nil, func(c *rawConn) {
		var ids []uint32
		for len(ids) < maxFree {
			id := c.request()
			if id == 0 {
				return
			}
			ids = append(ids, id)
		}
		for _, id := range ids {
			c.respond(id, true, ":status", "204")
		}
		c.request()
	}))
	c := dialRaw(t, r.addr)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	list := getBlock()
	for range 1500 {
		// An indexed field: age.
		list = append(list, 0x80|21)
	}
	for i := range uint32(maxFree) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true, EndStream: true, BlockFragment: list})
	}
	testwait.Until(t, "all have been answered", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.ended) == maxFree })
	testwait.Until(t, "all have ended", func() bool { return r.active() == 0 })
	v := r.all()[0]
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, s := range v.free {
		n += cap(s.request.Fields) + cap(s.trailers) + cap(s.held.Fields)
	}
	if n > maxFree*smallList || len(v.free) == 0 {
		t.Errorf("room for %d fields in %d streams", n, len(v.free))
	}
}
