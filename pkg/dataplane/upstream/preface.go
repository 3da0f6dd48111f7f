package upstream

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// preface looks at the frames that an HTTP/2 connection begins with, since
// net/http does not tell why it takes no request. It belongs to who reads; what is atomic is for others.
type preface struct {
	// header is that of the next frame as far as it is there, have how much that is.
	header [frameHeader]byte
	have   int
	// left is how much of the present frame is still to come.
	left int
	// settings: the first frame is SETTINGS, as it must be (RFC 9113 section 3.4); goAway: there was a GOAWAY.
	settings, goAway atomic.Bool
	// over: nobody wants to know any more, or what comes is not HTTP/2.
	over atomic.Bool
}

// frameHeader is the length of a frame's header (RFC 9113 section 4.1).
const frameHeader = 9

func (p *preface) read(b []byte) {
	for len(b) > 0 && !p.over.Load() {
		if p.left > 0 {
			n := min(p.left, len(b))
			p.left, b = p.left-n, b[n:]
			continue
		}
		n := copy(p.header[p.have:], b)
		p.have, b = p.have+n, b[n:]
		if p.have == frameHeader {
			p.have = 0
			p.frame()
		}
	}
}

// frame takes a whole header in.
func (p *preface) frame() {
	p.left = int(binary.BigEndian.Uint32(p.header[:4]) >> 8)
	kind, stream := http2.FrameType(p.header[3]), binary.BigEndian.Uint32(p.header[5:])&(1<<31-1)
	switch {
	case kind == http2.FrameSettings && stream == 0:
		p.settings.Store(true)
	case !p.settings.Load():
		p.over.Store(true)
	case kind == http2.FrameGoAway:
		p.goAway.Store(true)
	}
}
