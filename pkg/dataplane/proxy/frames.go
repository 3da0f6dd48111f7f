package proxy

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frames follows the HTTP/2 frames that are written to a client, to know where
// another one may stand. The zero value is a connection on which nothing was written.
type frames struct {
	// kind is 0 before the first byte, then 1 or 2 for the version of HTTP.
	kind byte
	head [9]byte
	// have is how much of a frame's header has passed, left how much of its payload is to come.
	have int
	left uint32
	// within: a header block is not complete (RFC 9113 section 6.10).
	within bool
}

// follow takes what was written.
func (f *frames) follow(p []byte) {
	if f.kind == 0 && len(p) > 0 {
		// The first frame is SETTINGS; its length is no 'H'.
		f.kind = 2
		if p[0] == 'H' {
			f.kind = 1
		}
	}
	for f.kind == 2 && len(p) > 0 {
		if f.left > 0 {
			n := min(int(f.left), len(p))
			f.left -= uint32(n)
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have == len(f.head) {
			f.begin()
		}
	}
}

// begin looks at a frame's header.
func (f *frames) begin() {
	f.have = 0
	f.left = uint32(f.head[0])<<16 | uint32(f.head[1])<<8 | uint32(f.head[2])
	switch http2.FrameType(f.head[3]) {
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		f.within = http2.Flags(f.head[4])&http2.FlagHeadersEndHeaders == 0
	default:
	}
}

// between tells whether a frame may be written now.
func (f *frames) between() bool { return f.kind == 2 && f.have == 0 && f.left == 0 && !f.within }

// warning is a GOAWAY that names the highest stream there can be.
var warning = func() []byte {
	b := []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, 1<<31-1)
	return binary.BigEndian.AppendUint32(b, uint32(http2.ErrCodeNo))
}()

// Write is net/http's.
func (c *conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	n, err := c.TCPConn.Write(p)
	c.frames.follow(p[:n])
	c.wmu.Unlock()
	c.say()
	return n, err
}

// say writes the GOAWAY that is wanted, if a frame may stand here. Who writes
// at this moment, or comes to the end of the frame, does it otherwise.
func (c *conn) say() {
	for c.goAway.Load() && c.wmu.TryLock() {
		may := c.frames.between()
		if may && c.goAway.CompareAndSwap(true, false) {
			_, _ = c.TCPConn.Write(warning)
		}
		c.wmu.Unlock()
		if !may {
			return
		}
	}
}
