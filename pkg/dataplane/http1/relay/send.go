package relay

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

const (
	// firstLook is after how long a wait for an endpoint looks whether the client is still there. It then looks
	// whenever the wait has grown by an eighth, and at least every lastLook.
	firstLook, lastLook = 50 * time.Millisecond, 5 * time.Second
	// maxInterims bounds the 1xx responses to one request.
	maxInterims = 100
)

// Send sends the request on conn once and waits for the head of the final
// response; interim ones are passed on. limit bounds the wait for this attempt; 0 is no limit.
//
// The response is valid until Relay or Discard, one of which comes next, or
// Switch for 101. An error is an *upstream.Error, whose Unsent, Unanswered and Reused
// hold; the connection is closed then, and another Send may follow if Replayable.
func (x *Exchange) Send(conn *Conn, limit time.Duration) (*http1.Response, error) {
	x.conn = conn
	x.up.Store(conn)
	conn.used++
	conn.resp.Status = 0
	w := wait{x: x, conn: conn}
	w.plan()
	if limit > 0 {
		w.try = w.began.after(limit)
		w.until = min(w.until, w.try)
	}
	resp, err := w.send()
	if err == nil {
		return resp, nil
	}
	e := w.classify(err)
	if e.Unsent && e.Unanswered && (errors.Is(err, errBody) || x.cancelled() != nil) {
		// It is none of the connection's fault, and nothing has been done with it.
		x.release()
	}
	x.body.stop()
	if failed := x.body.failed.Load(); failed != nil && x.cancelled() == nil {
		e.Reason, e.Err = failed.Reason, failed.Err
		if e.Reason == upstream.BadBody {
			e.Err = fmt.Errorf("read request body: %w", failed.Err)
		}
	}
	x.drop()
	return nil, e
}

// send sends the request, has the rest of its body uploaded, and waits for the answer.
func (w *wait) send() (*http1.Response, error) {
	if err := w.impossible(); err != nil {
		return nil, err
	}
	x, conn := w.x, w.conn
	conn.in.ensure()
	x.c.out.ensure()
	x.body.uploaded = false
	out, from, whole := x.body.inline(x.req.Append((*x.c.out.mem)[:0]))
	var n int
	var err error
	if whole {
		w.wrote, n, err = conn.sock.ask(out, conn.in.space(), w.until)
		if err = w.judge(err); err == nil {
			// It may have been woken before all was written.
			err = w.write(out)
		}
	} else if err = w.write(out); err == nil {
		x.body.upload(conn, from)
	}
	conn.in.w += n
	w.read += n
	if err != nil {
		conn.broken = true
		if !readable(err) {
			return nil, err
		}
	}
	return w.head(err)
}

// impossible is why the request cannot be sent at all; nil where it can.
func (w *wait) impossible() error {
	if err := w.x.cancelled(); err != nil {
		return err
	}
	switch {
	case w.x.body.failed.Load() != nil:
		return errBody
	case w.x.req.Method == http.MethodConnect:
		return errConnect
	}
	return nil
}

// write writes what of out has not been written.
func (w *wait) write(out []byte) error {
	for w.wrote < len(out) {
		n, err := w.conn.sock.write(out[w.wrote:], w.until)
		w.wrote += n
		if err = w.judge(err); err != nil {
			return err
		}
	}
	return nil
}

// readable tells whether after an error of writing there may still be something to be read: a
// server may answer and close before it has read all.
func readable(err error) bool {
	op := new(os.SyscallError)
	return errors.As(err, &op) && op.Syscall == "write"
}
