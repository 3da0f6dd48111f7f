package http2

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// flow is what one stream sends: its window, and what waits for it. The mutex
// of its connection guards it.
type flow struct {
	owner  flowOwner
	id     uint32
	window int
	queue  queue
	// end: what is queued is all. trailers follow it; nil for none.
	end      bool
	trailers []message.Field
	// ended: END_STREAM was sent.
	ended bool
	// listed: it is among link.blocked, because not its own window holds it up.
	listed bool
	// moved: something left since the last tick. stalled is for how long nothing did.
	moved   bool
	stalled time.Duration
}

// flowOwner hears what becomes of a flow, with the connection's lock held.
type flowOwner interface {
	// sentSome says that n bytes of the queue were sent.
	sentSome(t *Turn, n int)
	// sentEnd says that END_STREAM was sent.
	sentEnd(t *Turn)
}

// reset makes a flow ready for another stream.
func (f *flow) reset(id uint32, window int) {
	f.queue.drop()
	clear(f.trailers)
	*f = flow{owner: f.owner, id: id, window: window, trailers: f.trailers[:0], listed: f.listed}
}

// sendData sends p, or queues what may not be sent now, and gives how much was sent. It needs mu.
func (l *link) sendData(t *Turn, f *flow, p []byte, end bool) int {
	f.end = end
	n := 0
	if f.queue.size == 0 {
		n = l.emit(t, f, p)
	}
	if n < len(p) {
		f.queue.push(p[n:])
		l.list(f)
	}
	if f.ended {
		f.owner.sentEnd(t)
	}
	return n
}

// sendTrailers sends them when what is queued has gone. It needs mu.
func (l *link) sendTrailers(t *Turn, f *flow, fields []message.Field) {
	if f.queue.size == 0 {
		l.emitTrailers(t, f, fields)
		return
	}
	f.end = true
	f.trailers = f.trailers[:0]
	for _, h := range fields {
		// Their text may be memory of another connection's, which has another message by then.
		h.Name, h.Value = strings.Clone(h.Name), strings.Clone(h.Value)
		f.trailers = append(f.trailers, h)
	}
}

// emitTrailers sends them now, and with them the end of the stream. It needs mu.
func (l *link) emitTrailers(t *Turn, f *flow, fields []message.Field) {
	o := l.put()
	at := len(o.b)
	b := append(o.b, make([]byte, headLen)...)
	if b = l.enc.AppendTrailers(b, fields); len(b) == at+headLen {
		// A block may not be empty in practice: some refuse it.
		b = appendData(b[:at], f.id, nil, true)
	} else {
		b = finishHeaders(b, at, f.id, true, l.peerFrame)
	}
	l.send(t, b)
	f.end, f.ended, f.moved = true, true, true
	f.owner.sentEnd(t)
}

// updateEach is half of what Go's HTTP/2 lets its user read before it gives that back, to the stream and to the
// connection; nobody known gives back less at a time, but for frames that are shorter.
const updateEach = 2 << 10

// maxSaved is how many frames beyond its budget a peer may save, for data that it has and gives back later, all at once.
const maxSaved = 1 << 20

// emit sends of p as much as the windows allow, and END_STREAM if p is all
// there is. It gives how much was sent. It needs mu.
func (l *link) emit(t *Turn, f *flow, p []byte) int {
	n := 0
	for {
		size := min(len(p)-n, f.window, l.sendWindow, l.peerFrame, highWater-l.waiting())
		rest := len(p) - n
		last := f.end && len(f.trailers) == 0 && rest == max(size, 0) && f.queue.size <= len(p)
		if size <= 0 && (rest > 0 || !last) || f.ended {
			return n
		}
		size = max(size, 0)
		l.send(t, appendData(l.put().b, f.id, p[n:n+size], last))
		n += size
		f.window -= size
		l.sendWindow -= size
		f.moved = true
		l.buckets[WindowFlood].give(2+size/updateEach, maxSaved)
		l.buckets[PingFlood].give(1, 0)
		if last {
			f.ended = true
			return n
		}
	}
}

// pump sends of the queue up to a frame. It needs mu.
func (l *link) pump(t *Turn, f *flow) {
	if f.queue.size == 0 || f.ended {
		return
	}
	p := f.queue.peek(chunkSize)
	// END_STREAM goes with the last of it, which emit knows by the queue's size.
	n := l.emit(t, f, p)
	if n == 0 {
		return
	}
	f.queue.skip(n)
	f.owner.sentSome(t, n)
	switch {
	case f.ended:
		f.owner.sentEnd(t)
	case f.queue.size == 0 && f.end:
		l.emitTrailers(t, f, f.trailers)
	}
}

// list has refill look at a flow that its own window does not hold up. It needs mu.
func (l *link) list(f *flow) {
	if !f.listed && !f.ended && f.window > 0 && f.queue.size > 0 {
		if len(l.blocked) == cap(l.blocked) {
			// A peer that gives no window could have any number of them held.
			l.prune()
		}
		f.listed = true
		l.blocked = append(l.blocked, f)
	}
}

// prune takes those that have ended meanwhile off the list. It needs mu.
func (l *link) prune() {
	l.blocked = slices.DeleteFunc(l.blocked, func(f *flow) bool {
		f.listed = f.queue.size > 0
		return !f.listed
	})
}

// refill goes round the flows that are held up by the connection, a frame each. It needs mu.
func (l *link) refill(t *Turn) bool {
	for len(l.blocked) > 0 && l.sendWindow > 0 && l.waiting() < highWater {
		f := l.blocked[0]
		l.blocked[0] = nil
		l.blocked = l.blocked[1:]
		f.listed = false
		l.pump(t, f)
		l.list(f)
	}
	return l.waiting() > 0
}

// widen takes a WINDOW_UPDATE for a stream. It needs mu.
func (l *link) widen(t *Turn, f *flow, n int) bool {
	f.window += n
	if f.window > maxWindow {
		return false
	}
	l.list(f)
	l.refill(t)
	return true
}

// stall counts the time that a flow has been held up; true when that is too long. It needs mu.
func (l *link) stall(f *flow, limit time.Duration) bool {
	if f.queue.size == 0 || f.moved {
		f.moved, f.stalled = false, 0
		return false
	}
	f.stalled += l.tickEvery()
	return f.stalled >= limit
}
