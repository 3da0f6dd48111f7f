package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

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
// an upload, one after another, while the connection's waits for the answer.
// Fields without a word on it belong to the upload while there is one.
type body struct {
	x       *Exchange
	chunked bool
	// left is what has not been read, where the body has a length.
	left    int64
	decoder http1.Chunked

	// kept is all that was read, until lost; ends in memory of its own (own) or in the client's window.
	kept []byte
	own  window
	// in is what the upload reads into.
	in window
	// failed is why the client's side of the body broke, nil while it has not.
	failed atomic.Pointer[upstream.Error]

	// complete: all was read. lost: what was read is not kept.
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
		// A wake that came too late must not be found by the next who reads.
		b.x.c.sock.wokenRead.Store(false)
		b.x.c.sock.readBy = expired
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

// decode takes the data out of what was read from the client.
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

func appendChunk(dst, data []byte) []byte {
	from := len(dst)
	dst = append(dst, "          "...)
	dst = append(dst, data...)
	dst = append(dst, "\r\n"...)
	start, end := http1.PutChunk(dst, from+http1.ChunkRoomBefore, len(dst)-http1.ChunkRoomAfter)
	n := copy(dst[from:], dst[start:end])
	return dst[:from+n]
}

// upload sends the rest of the body to conn; from is how much of kept has been sent.
func (b *body) upload(conn *Conn, from int) {
	if b.ended == nil {
		b.ended = make(chan struct{}, 1)
	}
	b.halt.Store(false)
	b.sentAll.Store(false)
	b.uploading, b.uploaded = true, true
	go b.run(conn, from)
}

// stop ends the upload, if there is one, and waits for its end.
func (b *body) stop() {
	if !b.uploading {
		return
	}
	b.halt.Store(true)
	b.x.c.sock.wakeRead()
	if up := b.x.up.Load(); up != nil {
		up.sock.wakeWrite()
	}
	<-b.ended
	b.uploading = false
	// A wake that came too late must not be found by the next who reads.
	b.x.c.sock.wokenRead.Store(false)
	b.x.c.sock.readBy = expired
}

// finish gives the upload a moment to end by itself, and tells whether the endpoint was sent all of the body.
func (b *body) finish() bool {
	if !b.uploading {
		return b.sent()
	}
	timer := time.NewTimer(afterAnswer)
	defer timer.Stop()
	select {
	case <-b.ended:
		b.uploading = false
	case <-timer.C:
		b.stop()
	}
	return b.sent()
}

// sent tells whether the endpoint was sent all of the body; there is no upload any more.
func (b *body) sent() bool {
	if b.uploaded {
		return b.sentAll.Load()
	}
	return b.complete.Load()
}

// afterAnswer is how long the rest of a request may take when its answer is over.
const afterAnswer = 50 * time.Millisecond

func (b *body) run(conn *Conn, from int) {
	defer func() {
		if b.x.c.cfg.Panicked != nil {
			if v := recover(); v != nil {
				b.x.c.cfg.Panicked(b.x.c.sock.RemoteAddr(), v, debug.Stack())
				b.failed.Store(&upstream.Error{Reason: upstream.Internal, Err: errPanic})
				conn.sock.wakeRead()
			}
		}
		b.ended <- struct{}{}
	}()
	if from < len(b.kept) && !b.send(conn, b.kept[from:]) {
		return
	}
	for !b.complete.Load() {
		data, failed := b.next()
		if failed != nil {
			b.failed.Store(failed)
			conn.sock.wakeRead()
			return
		}
		if b.halt.Load() {
			return
		}
		if len(data) > 0 && !b.put(conn, data) {
			return
		}
	}
	if b.chunked {
		if !b.write(conn, http1.AppendLast(nil, b.decoder.Trailers())) {
			return
		}
	}
	b.sentAll.Store(true)
}

var errPanic = errors.New("a defect of this proxy in sending the request's body")

// next reads more of the body; nothing without a failure is that the upload is to stop.
func (b *body) next() ([]byte, *upstream.Error) {
	b.in.enlarge(largeBuffer)
	b.in.r, b.in.w = headroom, headroom
	until := in(b.x.c.cfg.ReadTimeout)
	n, err := b.x.c.sock.read(b.in.space(), until)
	switch {
	case errors.Is(err, errWoken):
		return nil, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &upstream.Error{Reason: upstream.BodyTimeout, Err: fmt.Errorf("no byte of the request body for %s", b.x.c.cfg.ReadTimeout)}
	case err != nil:
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, &upstream.Error{Reason: upstream.ClientGone, Err: err}
	}
	b.in.w += n
	data, used, failed := b.decode(b.in.data())
	b.in.r += used
	if failed != nil {
		return nil, failed
	}
	b.keep(data)
	return data, nil
}

// keep notes data for another attempt, as long as it is not too much.
func (b *body) keep(data []byte) {
	if b.lost.Load() {
		return
	}
	total := len(b.kept) + len(data)
	if total > replayLimit {
		b.lost.Store(true)
		b.kept = nil
		b.own.give()
		return
	}
	if b.own.mem == nil {
		b.own.enlarge(replayLimit)
		b.own.w += copy(b.own.space(), b.kept)
	}
	b.own.w += copy(b.own.space(), data)
	b.kept = b.own.data()
}

// put sends data, which is in b.in, as a chunk where that is the body's coding.
func (b *body) put(conn *Conn, data []byte) bool {
	if !b.chunked {
		return b.write(conn, data)
	}
	mem := *b.in.mem
	// Where data begins in mem: slices of the same memory differ in capacity by that.
	start := cap(mem) - cap(data)
	if start < http1.ChunkRoomBefore || start+len(data)+http1.ChunkRoomAfter > b.in.r && b.complete.Load() {
		return b.send(conn, data)
	}
	from, to := http1.PutChunk(mem, start, start+len(data))
	return b.write(conn, mem[from:to])
}

// send sends data from anywhere.
func (b *body) send(conn *Conn, data []byte) bool {
	if !b.chunked {
		return b.write(conn, data)
	}
	return b.write(conn, appendChunk(nil, data))
}

// write gives false where the upload is over. That the endpoint takes no more is
// not the end of the exchange: it may have answered.
func (b *body) write(conn *Conn, p []byte) bool {
	for {
		n, err := conn.sock.write(p, 0)
		p = p[n:]
		switch {
		case err == nil:
			return true
		case !errors.Is(err, errWoken) || b.halt.Load() || b.x.cancelled() != nil:
			return false
		}
	}
}
