package proxy

import (
	"errors"
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
// moved in either for idle. Otherwise it is splice: an end of stream passes on as
// a half-close, an error ends both at once, and it gives the same and IdleTimeout.
// A side that does not read holds the other one up: nothing is kept in between
// but what the kernel does.
func relayConns(up, client *net.TCPConn, idle time.Duration) (toUp, toClient int64, why upstream.Reason) {
	s := &session{breakage: breakage{client: client}, idle: idle}
	s.moved.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { toUp = s.pump(up, client) })
	toClient = s.pump(client, up)
	wg.Wait()
	return toUp, toClient, s.reason(toClient)
}

// session is one pair of connections.
type session struct {
	breakage
	idle time.Duration
	// moved is when bytes last moved either way, in Unix nanoseconds.
	moved atomic.Int64
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
			s.ended(dst, src, nil)
			return done
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || s.moved.Load() > last.UnixNano()) && !writing(err):
		default:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.once.Do(func() { s.expired = true })
			}
			s.ended(dst, src, err)
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
