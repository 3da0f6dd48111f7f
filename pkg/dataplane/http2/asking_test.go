package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func asked(t *testing.T, addr string) *Pool {
	t.Helper()
	p := NewPool(PoolConfig{Address: netip.MustParseAddrPort(addr)})
	t.Cleanup(p.Close)
	return p
}

// receive reads an answer to its end.
func receive(a *Asking) (status int, body []byte, err error) {
	for {
		m, err := a.Head()
		if err != nil {
			return 0, nil, err
		}
		if status = m.Status; status >= 200 {
			break
		}
	}
	for {
		p, err := a.Read()
		if err != nil || len(p) == 0 {
			return status, body, err
		}
		body = append(body, p...)
	}
}

// TestAsk: a goroutine sends a body that is longer than all windows while another one receives it back.
func TestAsk(t *testing.T) {
	p := asked(t, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "Sum")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("Sum", r.Trailer.Get("Sum"))
	})))
	want := bytes.Repeat([]byte("0123456789abcdef"), 200<<10)
	a, err := p.Ask(t.Context(), &message.Request{
		Method: "POST", Scheme: "http", Authority: "a", Path: "/", Length: -1, Fields: []message.Field{{Name: "trailer", Value: "sum"}},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := errors.Join(a.Write(want), a.Finish([]message.Field{{Name: "sum", Value: "42"}})); err != nil {
			t.Error(err)
		}
	})
	status, got, err := receive(a)
	wg.Wait()
	if status != 200 || err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d, %d bytes, %v", status, len(got), err)
	}
	if sum := message.Fields(a.Trailers()).Get("sum"); sum != "42" {
		t.Errorf("trailers %v", a.Trailers())
	}
	a.End()
}

// TestAskBroken: whoever waits comes back when the request is given up, and the endpoint hears of it.
func TestAskBroken(t *testing.T) {
	gone := make(chan struct{})
	p := asked(t, startBackend(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	})))
	a, err := p.Ask(t.Context(), &message.Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Length: -1}, false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for a.Write(make([]byte, 64<<10)) == nil {
		}
	})
	testwait.Until(t, "what was sent is not read", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.ahead > 0
	})
	a.Break()
	if _, err := a.Head(); err == nil {
		t.Error("an answer")
	}
	wg.Wait()
	<-gone
	a.End()
}

// TestAskWaits: a request waits for a place as long as its context lasts, and gets one that another gave back.
func TestAskWaits(t *testing.T) {
	held := make(chan struct{})
	backend := scripted(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(c *rawConn) {
		id := c.request()
		<-held
		c.respond(id, true, ":status", "204")
		c.respond(c.request(), true, ":status", "204")
		c.request()
	})
	g := &gate{}
	g.left.Store(1)
	address := netip.MustParseAddrPort(backend)
	p := NewPool(PoolConfig{Address: address, Dial: dialer(upstream.New(upstream.Config{Address: address, Gate: g}))})
	defer p.Close()
	m := &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}
	first, err := p.Ask(t.Context(), m, false)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Ask(short, m, true); upstream.ReasonOf(err) != upstream.StreamLimit || !strings.Contains(err.Error(), "deadline exceeded while waiting for a stream") {
		t.Errorf("%v", err)
	}
	if _, err := p.Ask(t.Context(), m, false); upstream.ReasonOf(err) != upstream.StreamLimit {
		t.Errorf("one that is not patient: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		second, err := p.Ask(t.Context(), m, true)
		if err != nil {
			t.Error(err)
			return
		}
		if status, _, err := receive(second); status != 204 || err != nil {
			t.Error(status, err)
		}
		second.End()
	})
	testwait.Until(t, "the second one waits", func() bool { return p.wanted() })
	close(held)
	if status, _, err := receive(first); status != 204 || err != nil {
		t.Error(status, err)
	}
	first.End()
	wg.Wait()
}

// saying serves each connection by what it says first, after which it is reset.
func saying(t *testing.T, say func(net.Conn, *http2.Framer)) string {
	t.Helper()
	return listen(t, func(_ context.Context, c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		say(c, http2.NewFramer(c, c))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
}

// A connection that ends right after the settings speaks HTTP/2 all the same:
// its end is what went wrong. Only what is none is called so.
func TestEndOfANewConnection(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(net.Conn, *http2.Framer)
		want upstream.Reason
	}{
		"reset without a word":     {func(net.Conn, *http2.Framer) {}, upstream.ConnectFailed},
		"reset after the settings": {func(_ net.Conn, f *http2.Framer) { _ = f.WriteSettings() }, upstream.ConnectFailed},
		"GOAWAY after the settings": {func(_ net.Conn, f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}, upstream.ConnectFailed},
		"settings that are none": {func(c net.Conn, f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
			_, _ = io.Copy(io.Discard, c)
		}, upstream.ProtocolError},
		"another protocol": {func(c net.Conn, _ *http2.Framer) {
			_, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, upstream.ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			p := asked(t, saying(t, c.say))
			for range 100 {
				a, err := p.Ask(t.Context(), &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}, false)
				if err == nil {
					// It was had before its end was known.
					if _, err = a.Head(); err == nil {
						t.Fatal("an answer")
					}
					a.End()
					continue
				}
				if got := upstream.ReasonOf(err); got != c.want {
					t.Fatalf("%s, want %s: %v", got, c.want, err)
				}
			}
		})
	}
}

// TestAskInOrder: those who wait for a place get one in the order in which they came, whoever comes meanwhile.
func TestAskInOrder(t *testing.T) {
	const all = 8
	var paths []string
	backend := scripted(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(c *rawConn) {
		for range all {
			c.respond(c.request(), true, ":status", "204")
		}
		c.request()
	})
	g := &gate{}
	g.left.Store(1)
	address := netip.MustParseAddrPort(backend)
	p := NewPool(PoolConfig{Address: address, Dial: dialer(upstream.New(upstream.Config{Address: address, Gate: g}))})
	defer p.Close()
	ask := func(path string) *Asking {
		a, err := p.Ask(t.Context(), &message.Request{Method: "POST", Scheme: "http", Authority: "a", Path: path, Length: -1}, true)
		if err != nil {
			t.Error(err)
		}
		return a
	}
	first := ask("/0")
	var wg sync.WaitGroup
	var mu sync.Mutex // guards paths
	for i := range all - 1 {
		wg.Go(func() {
			path := fmt.Sprintf("/%d", i+1)
			a := ask(path)
			mu.Lock()
			paths = append(paths, path)
			mu.Unlock()
			_ = a.Finish(nil)
			if status, _, err := receive(a); status != 204 || err != nil {
				t.Error(status, err)
			}
			a.End()
		})
		testwait.Until(t, "it waits", func() bool { return p.waiters.Load() == int64(i+1) })
	}
	_ = first.Finish(nil)
	_, _, _ = receive(first)
	first.End()
	wg.Wait()
	if got, want := strings.Join(paths, ""), "/1/2/3/4/5/6/7"; got != want {
		t.Errorf("in the order %s", got)
	}
}
