package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

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
	b.x.c.sock.forgetWake()
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

// run is the upload's goroutine. However it ends, the other one learns it: from failed, from the endpoint, or from ended.
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
	until := fromNow(b.x.c.cfg.ReadTimeout)
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

// put sends data, which is in b.in: where the body is chunked as a chunk that is made where it stands.
func (b *body) put(conn *Conn, data []byte) bool {
	if !b.chunked {
		return b.write(conn, data)
	}
	start := b.in.offset(data)
	if start < http1.ChunkRoomBefore || start+len(data)+http1.ChunkRoomAfter > b.in.r && b.complete.Load() {
		// The chunk's frame would overwrite what is still to be used.
		return b.send(conn, data)
	}
	mem := *b.in.mem
	from, to := http1.PutChunk(mem, start, start+len(data))
	return b.write(conn, mem[from:to])
}

// send sends data that may lie anywhere, and is not overwritten.
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
