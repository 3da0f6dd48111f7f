package http2

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/linger"
)

// tickEvery is how often a connection is looked at: half of its shortest bound, so that what is over a bound is found
// within half of it more.
func (l *link) tickEvery() time.Duration {
	least := min(l.cfg.PingTimeout, l.cfg.StallTimeout)
	if d := l.cfg.BodyTimeout; d > 0 {
		least = min(least, d)
	}
	return least / 2
}

// startTicks begins to look at the connection every so often, until stopTicks.
func (l *link) startTicks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticker = time.AfterFunc(l.tickEvery(), l.ticked)
}

func (l *link) stopTicks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.ticker != nil {
		l.ticker.Stop()
	}
}

var errSilent = errors.New("a PING was not answered")

func (l *link) ticked() {
	var t Turn
	if err := l.look(&t); err != nil {
		l.hangUp(&t, err)
		return
	}
	t.flush()
}

// look looks at the connection once, and asks a silent peer with a PING:
//
//	heard ──nothing for PingAfter──▶ asked ──nothing for PingTimeout──▶ over
//	  ▲                                │
//	  └──────────── anything ──────────┘
//
// An error ends the connection.
func (l *link) look(t *Turn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.guard()
	if l.over {
		return nil
	}
	err := l.side.tick(t)
	every := l.tickEvery()
	switch {
	case l.heard.Swap(false):
		l.silent, l.asked = 0, false
	case l.asked && l.silent >= l.cfg.PingAfter+l.cfg.PingTimeout:
		err = errSilent
	default:
		if l.silent += every; l.silent >= l.pingAfter() && !l.asked {
			l.asked, l.silent = true, l.cfg.PingAfter
			l.pings++
			l.send(t, appendPing(l.put().b, false, 0))
		}
	}
	if err != nil {
		l.failure = err
		// What comes before the peer knows is none of what it will be told that we have seen to.
		l.side.last()
	} else {
		l.ticker.Reset(every)
	}
	return err
}

// A gRPC server takes the third PING within minPings of the one before as misuse, unless it has sent something
// meanwhile, and closes its connection with all that is on it (gRFC A8). So a silent endpoint is asked soonPings times,
// and then so seldom that it is the kernel that finds a host that is gone (upstream.KeepAlive).
const (
	soonPings = 2
	minPings  = 5 * time.Minute
)

// pingAfter is for how long nothing must have come before the peer is asked. It needs mu.
func (l *link) pingAfter() time.Duration {
	if l.soon > 0 && l.pings >= l.soon {
		return max(l.cfg.PingAfter, minPings)
	}
	return l.cfg.PingAfter
}

// hangUp tells the peer why, where err is a ConnError, and makes the reader end.
func (l *link) hangUp(t *Turn, err error) {
	l.farewell(t, err)
	t.flush()
	_ = l.nc.SetReadDeadline(past)
}

// parting is a flusher that makes the reader end, after everything was written.
type parting struct{ l *link }

// Flush implements flusher.
func (p parting) Flush(t *Turn) {
	p.l.Flush(t)
	_ = p.l.nc.SetReadDeadline(past)
}

// farewell queues the GOAWAY that err stands for; nothing for other errors.
func (l *link) farewell(t *Turn, err error) {
	e, ok := errors.AsType[*ConnError](err)
	if !ok {
		return
	}
	l.locked(func() { l.send(t, appendGoAway(l.put().b, l.side.last(), e.Code, e.Text)) })
}

// lingerBytes is how much of what still comes is thrown away: closing with unread data would take back the last that was
// written (package linger).
const lingerBytes = 1 << 20

// finish closes the connection after run gave err, and gives why it ended, which failure knows better where it is set.
//
//	the peer broke a rule        ──▶ GOAWAY, written for linger.ToClose at most ──▶ lingers as long ──▶ closed
//	all is done, in good order   ──▶ written as long as the peer reads ──▶ lingers while it reads ──▶ closed
//	anything else                ──▶ closed
func (l *link) finish(t *Turn, err error) error {
	l.stopTicks()
	l.mu.Lock()
	told := l.failure != nil
	if told {
		err = l.failure
	}
	l.mu.Unlock()
	_, wrong := errors.AsType[*ConnError](err)
	if wrong && !told {
		l.farewell(t, err)
	}
	t.flush()
	switch {
	case wrong:
		l.drain(t, linger.ToClose)
		l.linger(false)
	case errors.Is(err, errClosed):
		// The end of the last answer may be among it.
		l.drain(t, -1)
		l.linger(true)
	}
	l.mu.Lock()
	if l.stuck {
		err = abusive(Stalled, "the peer does not read")
	}
	l.dead = true
	if l.out != nil {
		l.out.free()
		l.out = nil
	}
	l.mu.Unlock()
	_ = l.nc.Close()
	l.release()
	l.writers.Wait()
	if e, ok := errors.AsType[*ConnError](err); ok && e.Abusive && l.cfg.Abused != nil {
		l.cfg.Abused(e.Abuse)
	}
	return err
}

// linger reads on after the last write: in an orderly end as long as the peer goes on reading, otherwise for
// linger.ToClose.
func (l *link) linger(orderly bool) {
	hc, ok := l.nc.(interface{ CloseWrite() error })
	if !ok {
		return
	}
	l.mu.Lock()
	hopeless := l.writing || l.dead
	l.mu.Unlock()
	if hopeless || hc.CloseWrite() != nil {
		return
	}
	if !orderly {
		if l.readFor(linger.ToClose) {
			_, _ = io.CopyN(io.Discard, l.nc, lingerBytes)
		}
		return
	}
	buf := readBuffers.Get().(*[readSize]byte)
	defer readBuffers.Put(buf)
	w := linger.Watch{Conn: l.nc, Speaks: true}
	for n, left := 0, lingerBytes; left > 0; left -= n {
		d, more := w.Next(n)
		if !more || !l.readFor(d) {
			return
		}
		var err error
		if n, err = l.nc.Read(buf[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// readFor lets a read take so long; false where the connection was killed, which no deadline may undo.
func (l *link) readFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	_ = l.nc.SetReadDeadline(time.Now().Add(d))
	return true
}

// cut closes the connection now, with err for what is on it.
func (l *link) cut(err error) {
	l.mu.Lock()
	if l.failure == nil {
		l.failure = err
	}
	l.kill()
	l.mu.Unlock()
}

// waitContext cuts the connection when ctx ends; the function it gives undoes that.
func (l *link) waitContext(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { l.cut(context.Cause(ctx)) })
}
