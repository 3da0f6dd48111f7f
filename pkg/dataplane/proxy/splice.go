package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// spliceChunk is how much is copied between two looks at the clock. Within it
// the kernel copies from socket to socket.
const spliceChunk = 256 << 10

// relayConns copies both ways until both directions have ended, or nothing has
// moved in either for idle. An end of stream passes on as a half-close, an
// error as a reset. A side that does not read holds the other one up: nothing is
// kept in between but what the kernel does. It gives the bytes that each side
// received; the error is the reason IdleTimeout, or nil.
func relayConns(a, b *net.TCPConn, idle time.Duration) (toA, toB int64, err error) {
	s := &session{idle: idle}
	s.moved.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { toA = s.pump(a, b) })
	toB = s.pump(b, a)
	wg.Wait()
	if s.expired.Load() {
		err = &upstream.Error{Reason: upstream.IdleTimeout, Err: fmt.Errorf("nothing moved for %s", idle)}
	}
	return toA, toB, err
}

// session is one pair of connections.
type session struct {
	idle time.Duration
	// moved is when bytes last moved either way, in Unix nanoseconds.
	moved   atomic.Int64
	expired atomic.Bool
}

func (s *session) pump(dst, src *net.TCPConn) (done int64) {
	for {
		last := time.Unix(0, s.moved.Load())
		_ = src.SetReadDeadline(last.Add(s.idle))
		// A peer that takes less than a chunk in the idle time is as good as gone.
		_ = dst.SetWriteDeadline(time.Now().Add(s.idle))
		n, err := io.CopyN(dst, src, spliceChunk)
		done += n
		if n > 0 {
			s.moved.Store(time.Now().UnixNano())
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			// It fails where dst is gone altogether, which the other direction finds out.
			_ = dst.CloseWrite()
			return done
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || s.moved.Load() > last.UnixNano()) && !writing(err):
		default:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.expired.Store(true)
			}
			// What one side lost must not look like a clean end to the other.
			reset(dst)
			reset(src)
			return done
		}
	}
}

// writing tells whether an error is of the writing side: what was read and not
// written then is lost, so there is no going on.
func writing(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "write" || op.Op == "writev")
}
