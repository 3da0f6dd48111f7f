package relay_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func poolTo(t *testing.T, endpoint string) *relay.Pool {
	t.Helper()
	p := relay.NewPool(relay.PoolConfig{
		Address: netip.MustParseAddrPort(endpoint),
		Dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", endpoint)
		},
	})
	t.Cleanup(p.Close)
	return p
}

func TestCall(t *testing.T) {
	p := poolTo(t, backend(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-T")
		echo(w, q)
		w.Header().Set("X-T", q.Trailer.Get("X-Q"))
	}))
	for _, length := range []int64{-1, 100_000} {
		body := strings.Repeat("0123456789", 10_000)
		k, err := acquire(t, p).Call(&message.Request{
			Method: "POST", Authority: "a", Path: "/", Length: length,
			Fields: []message.Field{{Name: "trailer", Value: "x-q"}, {Name: "content-type", Value: "x"}},
		}, time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			err := k.Write([]byte(body))
			if err == nil {
				err = k.Finish([]message.Field{{Name: "x-q", Value: "q"}})
			}
			sent <- err
		}()
		for _, want := range []int{103, 200} {
			head, err := k.Head()
			if err != nil || head.Status != want {
				t.Fatalf("%+v, %v, want %d", head, err, want)
			}
		}
		var got strings.Builder
		for {
			part, err := k.Read()
			if err != nil {
				t.Fatal(err)
			}
			if len(part) == 0 {
				break
			}
			got.Write(part)
		}
		if err := <-sent; err != nil || got.String() != body {
			t.Errorf("length %d: %d bytes came back, %v", length, got.Len(), err)
		}
		if trailers := k.Trailers(); length < 0 && (len(trailers) != 1 || trailers[0].Value != "q") {
			t.Errorf("trailers %v", trailers)
		}
		k.End()
	}
	if p.Open() != 1 {
		t.Errorf("%d connections, want one that was used twice", p.Open())
	}
}

// TestBreakAfterEnd: who breaks a call off for its deadline may come too late, and the connection is another request's.
func TestBreakAfterEnd(t *testing.T) {
	p := poolTo(t, backend(t, func(http.ResponseWriter, *http.Request) {}))
	call := func() *relay.Call {
		k, err := acquire(t, p).Call(&message.Request{Method: "POST", Authority: "a", Path: "/"}, time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := call()
	if _, err := first.Head(); err != nil {
		t.Fatal(err)
	}
	first.End()
	second := call()
	first.Break()
	if _, err := second.Head(); err != nil {
		t.Errorf("the next request on the connection: %v", err)
	}
	second.End()
	if p.Open() != 1 {
		t.Errorf("%d connections, want one that was used twice", p.Open())
	}
}

func TestCallFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		reason upstream.Reason
	}{
		"no answer":   {"", upstream.ResetBeforeHeaders},
		"half a body": {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", upstream.ResetMidBody},
		"nonsense":    {"HTTP/9.9 OK\r\n\r\n", upstream.ProtocolError},
	} {
		p := poolTo(t, raw(t, func(c2 *net.TCPConn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_, _ = io.WriteString(c2, c.answer)
		}))
		k, err := acquire(t, p).Call(&message.Request{Method: "GET", Authority: "a", Path: "/"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.Head()
		for part := []byte{0}; err == nil && len(part) > 0; {
			part, err = k.Read()
		}
		if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Reason != c.reason || e.Unanswered != (c.answer == "") {
			t.Errorf("%s: %+v", name, e)
		}
		k.End()
		if p.Open() != 0 {
			t.Errorf("%s: the connection is kept", name)
		}
	}
	p := poolTo(t, raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }))
	k, err := acquire(t, p).Call(&message.Request{Method: "GET", Authority: "a", Path: "/"}, time.Now().Add(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Head(); upstream.ReasonOf(err) != upstream.Deadline {
		t.Errorf("got %v", err)
	}
	k.End()
	k, err = acquire(t, p).Call(&message.Request{Method: "GET", Authority: "a", Path: "/"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, k.Break)
	if _, err := k.Head(); err == nil {
		t.Error("it was broken off, and an answer came")
	}
	k.End()
}

// TestCallBreaksOnBothSides: the endpoint resets the connection while one goroutine sends and another waits for the
// answer. Each has its error, and the connection is not used again.
func TestCallBreaksOnBothSides(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.ReadFull(c, make([]byte, 100_000))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}()
	p := poolTo(t, l.Addr().String())
	k, err := acquire(t, p).Call(&message.Request{Method: "POST", Authority: "a", Path: "/", Length: -1}, time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		part := make([]byte, 10_000)
		for {
			if err := k.Write(part); err != nil {
				sent <- err
				return
			}
		}
	}()
	_, headErr := k.Head()
	for _, err := range []error{headErr, <-sent} {
		if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Reason != upstream.ResetBeforeHeaders || e.Unsent {
			t.Errorf("%v", err)
		}
	}
	k.End()
	if n := p.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}
