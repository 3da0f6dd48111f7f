package relay

import (
	"errors"
	"sync/atomic"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// replayLimit is how much of a request's body is kept so that it can be sent again.
const replayLimit = 64 << 10

// inlineLimit is how much of a body goes out together with the head. A peer
// that reads nothing takes so much all the same, so no write of it waits for an answer.
const inlineLimit = smallBuffer

// body is the body of a request. What came with the head, whole in most
// requests, is read by the connection's goroutine; the rest by the goroutine of
// an upload (upload.go), one for each attempt, while the connection's waits for the answer.
// Fields belong to the upload while there is one, unless their comment or their type says otherwise.
//
//	begin ──▶ inline ──▶ upload ──▶ stop or finish ──▶ end
//	             ▲                        │
//	             └────── another Send ────┘
//
// Without an endpoint of HTTP/1.1 Exchange.ReadBody takes the place of all between begin and end.
type body struct {
	x       *Exchange
	chunked bool
	// left is what has not been read, where the body has a length.
	left    int64
	decoder http1.Chunked

	// kept is all that was read, until lost. It lies in the client's window, or in memory of its own (own).
	kept []byte
	own  window
	// in is what the upload reads into.
	in window
	// failed is why the client's side of the body broke, nil while it has not.
	failed atomic.Pointer[upstream.Error]

	// complete: all was read. lost: what was read is not kept. received counts its bytes.
	complete, lost atomic.Bool
	received       atomic.Int64

	// These are the connection goroutine's: an upload is under way, or was for this attempt; ended receives when it is over.
	uploading, uploaded bool
	ended               chan struct{}
	// halt tells the upload to stop; sentAll is set by it when the endpoint has been sent everything.
	halt, sentAll atomic.Bool
}

// begin takes what came with the head.
func (b *body) begin() {
	b.chunked, b.left = b.x.req.Chunked, b.x.req.Length
	if b.left == 0 {
		// Most requests; complete stays what it was.
		if !b.complete.Load() {
			b.complete.Store(true)
		}
		return
	}
	b.complete.Store(false)
	if limit := b.x.c.cfg.MaxBody; limit > 0 && b.left > limit {
		b.failed.Store(&upstream.Error{Reason: upstream.BodyTooLarge, Err: errTooLong})
		b.kept = []byte{}
		return
	}
	if b.chunked {
		b.decoder.Reset()
	}
	w := &b.x.c.in
	data, used, err := b.decode(w.data())
	w.r += used
	if err != nil {
		b.failed.Store(err)
	}
	// Nothing is copied: the window is not written to before the request is over.
	b.kept = data
}

// end makes ready for the next request.
func (b *body) end() {
	if b.chunked || b.kept != nil || b.received.Load() > 0 {
		b.kept, b.chunked = nil, false
		b.failed.Store(nil)
		b.received.Store(0)
		b.own.give()
	}
	if b.lost.Load() {
		b.lost.Store(false)
	}
	if b.halt.Load() {
		b.halt.Store(false)
		b.x.c.sock.forgetWake()
	}
	if len(b.in.data()) > 0 {
		// What was read too far is the beginning of the next request.
		b.x.c.in.give()
		b.x.c.in, b.in = b.in, window{}
	} else {
		b.in.give()
	}
}

// whole tells whether the client has no more of the body to send.
func (b *body) whole() bool { return b.complete.Load() && b.failed.Load() == nil }

// decode takes the data out of what was read from the client. used is how much of p belongs to the body.
func (b *body) decode(p []byte) (data []byte, used int, failed *upstream.Error) {
	if b.chunked {
		part, n, done, err := b.decoder.Decode(p)
		if err != nil {
			return nil, n, &upstream.Error{Reason: upstream.BadBody, Err: err}
		}
		data, used = part, n
		b.complete.Store(done)
	} else {
		n := min(int64(len(p)), b.left)
		b.left -= n
		data, used = p[:n], int(n)
		b.complete.Store(b.left == 0)
	}
	if limit := b.x.c.cfg.MaxBody; b.received.Add(int64(len(data))) > limit && limit > 0 {
		b.complete.Store(false)
		return nil, used, &upstream.Error{Reason: upstream.BodyTooLarge, Err: errTooLong}
	}
	return data, used, nil
}

var errTooLong = errors.New("the request's body is longer than is allowed")

// inline appends to a head what goes out with it: all that is known of the body, unless that is much. from is how much
// of kept that was; whole tells that the request is complete with it.
func (b *body) inline(head []byte) (out []byte, from int, whole bool) {
	complete := b.complete.Load()
	if most := inlineLimit / 4; len(b.kept) >= most && !(complete && len(b.kept) <= inlineLimit) {
		return head, 0, false
	}
	return b.appendInline(head), len(b.kept), complete
}

// appendInline appends what is known of the body to a head, and the end of the body if all is known.
func (b *body) appendInline(dst []byte) []byte {
	if !b.chunked {
		return append(dst, b.kept...)
	}
	if len(b.kept) > 0 {
		dst = appendChunk(dst, b.kept)
	}
	if b.complete.Load() {
		dst = http1.AppendLast(dst, b.decoder.Trailers())
	}
	return dst
}

// appendChunk appends data as a chunk. Its size is written where there is room for the longest, and then moved together.
func appendChunk(dst, data []byte) []byte {
	from := len(dst)
	dst = append(dst, "          "...)
	dst = append(dst, data...)
	dst = append(dst, "\r\n"...)
	start, end := http1.PutChunk(dst, from+http1.ChunkRoomBefore, len(dst)-http1.ChunkRoomAfter)
	n := copy(dst[from:], dst[start:end])
	return dst[:from+n]
}
