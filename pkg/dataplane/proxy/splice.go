package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// halfCloser is a connection whose writing side can end alone.
type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// splice copies both ways until both directions have ended. An end of stream
// passes on as a half-close; an error ends both at once. It gives the bytes
// that each side received, and why the tunnel broke off, nil where it did not:
// ClientGone, or the upstream's reset, by whether it had sent anything.
func splice(up, client halfCloser) (toUp, toClient int64, why *upstream.Error) {
	var (
		wg    sync.WaitGroup
		first = breakage{client: client}
	)
	wg.Go(func() { toUp = first.pump(up, client) })
	toClient = first.pump(client, up)
	wg.Wait()
	return toUp, toClient, first.why(toClient)
}

// breakage is the first of what went wrong with a tunnel: what follows is our own doing.
type breakage struct {
	client halfCloser
	once   sync.Once
	// side broke, nil for none; expired: neither did, but nothing moved. Both are set once.
	side    halfCloser
	expired bool
	// err is what was met; set with them.
	err error
	// over is set before anything is reset.
	over atomic.Bool
	// toldUp and toldClient: this side was told of the other's end.
	toldUp, toldClient atomic.Bool
}

func (f *breakage) told(side halfCloser) *atomic.Bool {
	if side == f.client {
		return &f.toldClient
	}
	return &f.toldUp
}

// why is what the tunnel broke off for, without an endpoint; nil when it ended in order.
func (f *breakage) why(toClient int64) *upstream.Error {
	e := &upstream.Error{Reason: upstream.ResetMidBody, Err: f.err}
	switch {
	case f.expired:
		e.Reason = upstream.IdleTimeout
	case f.side == nil:
		return nil
	case f.side == f.client:
		e.Reason = upstream.ClientGone
	case toClient == 0:
		e.Reason = upstream.ResetBeforeHeaders
	}
	return e
}

// pump copies one way, and passes on how that ended.
func (f *breakage) pump(dst, src halfCloser) int64 {
	n, err := io.Copy(dst, src)
	f.ended(dst, src, err)
	return n
}

// ended passes on how the direction from src to dst ended; err is nil at the end of the stream.
func (f *breakage) ended(dst, src halfCloser, err error) {
	// It is asked last whether src was told: one that both sides have ended in order looks dead too, from then on.
	if err == nil && (dead(tcpOf(src)) || f.over.Load()) && !f.told(src).Load() {
		// A reset is reported once. The other direction, which writes there, had
		// the error, and to this one it looks like an end.
		err = syscall.ECONNRESET
		f.once.Do(func() { f.side, f.err = src, err })
	}
	if err != nil {
		f.once.Do(func() { f.side, f.err = brokenOf(dst, src, err), err })
		f.over.Store(true)
		// What one side lost must not look like a clean end to the other.
		reset(dst)
		reset(src)
		return
	}
	f.told(dst).Store(true)
	// It fails where dst is gone altogether, which the other direction finds out.
	_ = dst.CloseWrite()
}

// brokenOf is the side that err came from; nil where we have closed a side ourselves.
func brokenOf(dst, src halfCloser, err error) halfCloser {
	switch {
	case errors.Is(err, net.ErrClosed):
		return nil
	case dead(tcpOf(dst)):
		return dst
	}
	return src
}

// tcpOf is the socket below a side of a tunnel; nil for a stream.
func tcpOf(c halfCloser) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ Socket() *net.TCPConn }:
		return c.Socket()
	}
	return nil
}

// reset closes a connection so that its peer sees it reset, where it can be.
func reset(c io.Closer) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}
