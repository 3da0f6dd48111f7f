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

// looks is how often in the idle time a direction that waits tells what it has moved.
const looks = 4

// relayConns copies both ways until both directions have ended, or nothing has
// moved in either for idle, or up to two looks more. Otherwise it is splice, which has no idle time: an end
// of stream passes on as a half-close, an error ends both at once, and it gives
// the same and IdleTimeout. A side that does not read holds the other one up:
// nothing is kept in between but what the kernel does.
func relayConns(up, client *net.TCPConn, idle time.Duration) (toUp, toClient int64, why *upstream.Error) {
	s := &session{breakage: breakage{client: client}, up: up, down: client, idle: idle}
	s.moved.Store(time.Now().UnixNano())
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Reset(idle)
	var wg sync.WaitGroup
	wg.Go(func() { toUp = s.pump(up, client) })
	toClient = s.pump(client, up)
	wg.Wait()
	s.finished.Store(true)
	s.timer.Stop()
	// A look that is under way says nothing any more.
	s.once.Do(func() {})
	return toUp, toClient, s.why(toClient)
}

// session is one pair of connections.
type session struct {
	breakage
	up, down *net.TCPConn
	idle     time.Duration
	// moved is when bytes were last seen to have moved either way, in Unix nanoseconds.
	moved atomic.Int64
	// timer calls look until the session has finished.
	timer    *time.Timer
	finished atomic.Bool
	// doubted: nothing had moved at the last look. It belongs to look.
	doubted bool
}

// pump copies one way. Only reading has a deadline, since it then has nothing
// in hand; a deadline on writing would lose what is in the kernel's pipe
// between the two, and TCPConn.ReadFrom does not tell which of them passed.
func (s *session) pump(dst, src *net.TCPConn) (done int64) {
	for {
		_ = src.SetReadDeadline(time.Now().Add(s.idle / looks))
		n, err := io.CopyN(dst, src, spliceChunk)
		done += n
		if n > 0 {
			s.moved.Store(time.Now().UnixNano())
		}
		switch {
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, io.EOF):
			s.ended(dst, src, nil)
			return done
		default:
			s.ended(dst, src, err)
			return done
		}
	}
}

// look ends both connections once nothing has moved for the idle time. It looks
// twice: after a pause of the whole process it may come before those who know
// better. A peer that takes less than a chunk in the time is as good as gone.
func (s *session) look() {
	if s.finished.Load() {
		return
	}
	if left := s.idle - time.Since(time.Unix(0, s.moved.Load())); left > 0 {
		s.doubted = false
		s.timer.Reset(left)
		return
	}
	if !s.doubted {
		s.doubted = true
		s.timer.Reset(s.idle / looks)
		return
	}
	s.once.Do(func() { s.expired, s.err = true, fmt.Errorf("nothing moved for %s", s.idle) })
	s.over.Store(true)
	reset(s.down)
	reset(s.up)
}
