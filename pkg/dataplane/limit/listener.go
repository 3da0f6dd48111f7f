package limit

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Connections is a number of connections that listeners share.
type Connections struct {
	// Max is how many may be open; 0 for any number.
	Max int
	// Refused hears why a connection was refused or could not be accepted; may be nil. It must not block.
	Refused func(upstream.Reason)
	open    atomic.Int64
}

// Open is how many are open.
func (c *Connections) Open() int { return int(c.open.Load()) }

func (c *Connections) refused(r upstream.Reason) {
	if c.Refused != nil {
		c.Refused(r)
	}
}

// The waits of an Accept that finds no file descriptor or no memory.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
)

// Listen gives a listener whose connections count. One over the limit is closed
// at once, with a reset, so that its client knows. Each connection is watched for a dead peer.
func Listen(l net.Listener, c *Connections) net.Listener {
	return &listener{Listener: l, shared: c, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	shared *Connections
	closed chan struct{}
	once   sync.Once
}

// Accept backs off where the process is out of file descriptors: those of
// others come free, and an error would only be tried again at once.
func (l *listener) Accept() (net.Conn, error) {
	wait := firstWait
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			if conn := l.admit(c); conn != nil {
				return conn, nil
			}
		case exhausted(err):
			l.shared.refused(upstream.ConnectionLimit)
			if !l.pause(wait) {
				return nil, err
			}
			wait = min(2*wait, lastWait)
		default:
			return nil, err
		}
	}
}

func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func (l *listener) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// admit gives nil for a connection that it has closed.
func (l *listener) admit(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	if n := l.shared.open.Add(1); l.shared.Max > 0 && n > int64(l.shared.Max) {
		l.shared.open.Add(-1)
		l.shared.refused(upstream.ConnectionLimit)
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
		return nil
	}
	upstream.KeepAlive(tcp)
	return &conn{TCPConn: tcp, leave: sync.OnceFunc(func() { l.shared.open.Add(-1) })}
}

// Close also ends an Accept that waits for file descriptors.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// conn gives its place back when it is closed.
type conn struct {
	*net.TCPConn
	leave func()
}

// Close closes the connection.
func (c *conn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

// Socket gives the connection itself, which the kernel can splice. It must be
// closed through conn.
func (c *conn) Socket() *net.TCPConn { return c.TCPConn }
