package http1

import (
	"bytes"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// Bounds of a chunked body's lines. The last two are below what net/http allows.
const (
	maxSizeDigits = 16
	maxExtension  = 256
	maxOverhead   = 8 << 10
	// maxTrailers is in bytes, the empty line included.
	maxTrailers = 4 << 10
)

// Chunked takes a body in chunked coding apart (RFC 9112 section 7.1). Each part
// of what it reads is
//
//	size ─▶ (extension) ─▶ LF ─▶ data ─▶ CR ─▶ LF ─▶ size …
//	                        └──size 0──▶ trailers ─▶ done
//
// The zero value is at the beginning of a body.
type Chunked struct {
	state chunkState
	// left is what the chunk still has; while its size is read, the size so far.
	left   uint64
	digits int
	// line is the length of the line so far, overhead what the lines had so far beyond their due (begin).
	line, overhead int
	trailers       []byte
	fields         head
}

// chunkState is what comes next.
type chunkState uint8

const (
	inSize chunkState = iota
	inExtension
	sizeLF
	inData
	dataCR
	dataLF
	inTrailers
	chunksDone
)

// Reset makes it ready for another body.
func (c *Chunked) Reset() {
	*c = Chunked{trailers: c.trailers[:0], fields: c.fields}
	c.fields.reset()
}

// Decode takes the next bytes of the body. Data is a part of p, in which the data of several
// chunks has been moved together; used is how much of p belongs to the body,
// all of it unless the body is done. An error is an *Error.
func (c *Chunked) Decode(p []byte) (data []byte, used int, done bool, err error) {
	from, to := 0, 0
	for i := 0; i < len(p); {
		if c.state == inData {
			n := len(p) - i
			if uint64(n) >= c.left {
				n = int(c.left)
				c.state = dataCR
			}
			c.left -= uint64(n)
			if from == to {
				from, to = i, i+n
			} else {
				if to != i {
					copy(p[to:], p[i:i+n])
				}
				to += n
			}
			i += n
			continue
		}
		if c.state == inTrailers {
			n, done, err := c.trailer(p[i:])
			return p[from:to], i + n, done, err
		}
		if err := c.step(p[i]); err != nil {
			return p[from:to], i, false, err
		}
		i++
	}
	return p[from:to], len(p), false, nil
}

// step takes one byte outside of data and trailers.
func (c *Chunked) step(b byte) error {
	switch c.state {
	case inSize:
		return c.size(b)
	case inExtension:
		if c.line++; c.line > maxExtension {
			return errChunkExt
		}
		if b == '\r' {
			c.state = sizeLF
		} else if b < 0x20 && b != '\t' || b == 0x7f {
			return errChunkExt
		}
	case sizeLF:
		if b != '\n' {
			return errChunkSize
		}
		return c.begin()
	case dataCR:
		if b != '\r' {
			return errChunkEnd
		}
		c.state = dataLF
	case dataLF:
		if b != '\n' {
			return errChunkEnd
		}
		c.state, c.left, c.digits, c.line = inSize, 0, 0, 0
	case inData, inTrailers, chunksDone:
	}
	return nil
}

// size takes one byte of the line that begins a chunk.
func (c *Chunked) size(b byte) error {
	c.line++
	if d := unhex(b); d >= 0 {
		if c.digits++; c.digits > maxSizeDigits {
			return errChunkSize
		}
		c.left = c.left<<4 | uint64(d)
		return nil
	}
	switch {
	case c.digits == 0:
		return errChunkSize
	case b == ';':
		c.state = inExtension
	case b == '\r':
		c.state = sizeLF
	default:
		return errChunkSize
	}
	return nil
}

// begin goes on after a line with a size. Its due is what net/http grants:
// 16 bytes, and twice the data (the idea is that lines must not be all there is).
func (c *Chunked) begin() error {
	if c.left > 1<<62 {
		return errChunkSize
	}
	if c.left == 0 {
		c.state = inTrailers
		return nil
	}
	c.state = inData
	due := 16 + 2*int(min(c.left, maxOverhead))
	if c.overhead = max(0, c.overhead+c.line+2-due); c.overhead > maxOverhead {
		return errChunkOverhead
	}
	return nil
}

// trailer takes the bytes after the last chunk, up to the empty line that ends the body.
func (c *Chunked) trailer(p []byte) (used int, done bool, err error) {
	had := len(c.trailers)
	room := min(len(p), maxTrailers+1-had)
	c.trailers = append(c.trailers, p[:room]...)
	end := 0
	if bytes.HasPrefix(c.trailers, crlf) {
		end = 2
	} else if i := bytes.Index(c.trailers, endOfHead); i >= 0 {
		end = i + 4
	}
	switch {
	case end > maxTrailers || end == 0 && len(c.trailers) > maxTrailers:
		return 0, false, errTrailers
	case end == 0:
		if _, err := whole(c.trailers, Limits{Bytes: maxTrailers + 1}); err != nil {
			return 0, false, err
		}
		return len(p), false, nil
	}
	c.trailers = c.trailers[:end]
	c.state = chunksDone
	return end - had, true, c.parseTrailers()
}

var crlf, endOfHead = []byte("\r\n"), []byte("\r\n\r\n")

// parseTrailers reads the trailer fields, which have the form of a head's.
func (c *Chunked) parseTrailers() error {
	h := &c.fields
	h.reset()
	if len(c.trailers) == 2 {
		return nil
	}
	h.raw = c.trailers
	if err := h.parse(0, Limits{Fields: 64}); err != nil {
		return err
	}
	for i := range h.lines {
		// What frames or routes a message cannot come after it (RFC 9110 section 6.5.1).
		l := &h.lines[i]
		if l.field < 0 || h.fields[l.field].Name == "content-length" || h.fields[l.field].Name == "expect" {
			return errTrailerName
		}
	}
	return nil
}

// Trailers gives the trailer fields once Decode has said done; they are valid until Reset.
func (c *Chunked) Trailers() []message.Field { return c.fields.fields }

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
