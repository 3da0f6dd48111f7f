package relay

import (
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
)

const (
	// smallBuffer is what heads and the first of a body are read into, largeBuffer what long bodies are.
	smallBuffer = 16 << 10
	largeBuffer = 64 << 10
	// headroom and tailroom are left free, so that what was read can be made a chunk where it
	// stands, and the end of the body put after it.
	headroom = http1.ChunkRoomBefore
	tailroom = http1.ChunkRoomAfter + len("0\r\n\r\n")
)

var smallBuffers, largeBuffers = pool(smallBuffer), pool(largeBuffer)

// pool lends memory for size bytes with the room around them.
func pool(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, headroom+size+tailroom)
		return &b
	}}
}

// window is memory from a pool, of which [r:w] has been read from a connection
// and not been used. Without memory it is empty.
type window struct {
	mem  *[]byte
	r, w int
}

// ensure makes sure that there is memory.
func (b *window) ensure() {
	if b.mem == nil {
		b.mem = smallBuffers.Get().(*[]byte)
		b.r, b.w = headroom, headroom
	}
}

// enlarge moves what there is into memory with room for size bytes in all.
func (b *window) enlarge(size int) {
	if b.mem != nil && len(*b.mem) >= headroom+size+tailroom {
		b.compact()
		return
	}
	larger := window{r: headroom, w: headroom}
	if size <= largeBuffer {
		larger.mem = largeBuffers.Get().(*[]byte)
	} else {
		m := make([]byte, headroom+size+tailroom)
		larger.mem = &m
	}
	larger.w += copy((*larger.mem)[headroom:], b.data())
	b.give()
	*b = larger
}

// makeRoom makes sure that there is space to read more, for a head or a body of up to most bytes.
func (b *window) makeRoom(most int) {
	switch {
	case len(b.space()) > 0:
	case b.r > headroom:
		b.compact()
	default:
		b.enlarge(max(largeBuffer, most))
	}
}

// offset is where data, a slice of the memory, begins in it: slices of the same memory differ in capacity by that.
func (b *window) offset(data []byte) int { return cap(*b.mem) - cap(data) }

// compact moves what there is to the beginning.
func (b *window) compact() {
	if b.r > headroom {
		b.w = headroom + copy((*b.mem)[headroom:], b.data())
		b.r = headroom
	}
}

// give gives the memory back, and drops what is in it.
func (b *window) give() {
	if b.mem == nil {
		return
	}
	switch len(*b.mem) {
	case headroom + smallBuffer + tailroom:
		smallBuffers.Put(b.mem)
	case headroom + largeBuffer + tailroom:
		largeBuffers.Put(b.mem)
	}
	*b = window{}
}

// data is what has been read and not been used.
func (b *window) data() []byte {
	if b.mem == nil {
		return nil
	}
	return (*b.mem)[b.r:b.w]
}

// space is where more can be read to.
func (b *window) space() []byte { return (*b.mem)[b.w : len(*b.mem)-tailroom] }
