package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"golang.org/x/net/http2"
)

// smallReads reads in pieces of a page, as a bufio.Reader does.
func smallReads(r io.Reader) (n int, err error) {
	page := make([]byte, 4<<10)
	for {
		k, err := r.Read(page)
		n += k
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// TestWindowUpdatesForPages: Go gives windows back for each 4 KiB that its user reads, in two frames. That is no flood.
func TestWindowUpdatesForPages(t *testing.T) {
	const size = 48 << 20
	backend := startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := smallReads(r.Body); err != nil {
			t.Errorf("the endpoint read %d bytes: %v", n, err)
		}
		if r.Method == http.MethodPost {
			return
		}
		page := make([]byte, 32<<10)
		for range size / len(page) {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	}))
	r := startRelay(t, &relayRig{}, backend)
	client := goClient(t)
	t.Run("download", func(t *testing.T) {
		resp, err := client.Get("http://" + r.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := smallReads(resp.Body); err != nil || n != size {
			t.Errorf("read %d bytes of %d: %v", n, size, err)
		}
	})
	t.Run("upload", func(t *testing.T) {
		resp, err := client.Post("http://"+r.addr+"/", "", io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d, %s", resp.StatusCode, resp.Header.Get("proxy-status"))
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestWindowUpdatesAtOnce: a client that was given much data and reads it later gives it all back at once.
func TestWindowUpdatesAtOnce(t *testing.T) {
	var l link
	for range 40 << 20 / frameSize {
		l.buckets[WindowFlood].give(2+frameSize/updateEach, maxSaved)
	}
	for i := range 2 * 40 << 20 / (4 << 10) {
		if !l.buckets[WindowFlood].take(defaultBudgets[WindowFlood]) {
			t.Fatalf("the budget is spent after %d frames", i)
		}
	}
}

// TestLateAnswers: answers that cross the resets of their requests are nobody's fault (RFC 9113 section 5.1).
func TestLateAnswers(t *testing.T) {
	const all = 400
	addr := scripted(t, nil, func(c *rawConn) {
		var ids []uint32
		for len(ids) < all {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.RSTStreamFrame); ok {
				ids = append(ids, f.StreamID)
			}
		}
		for _, id := range ids {
			c.respond(id, false, ":status", "200")
			c.respond(id, true, "grpc-status", "0")
		}
		if id := c.request(); id != 0 {
			c.respond(id, true, ":status", "200")
		}
		_, _ = c.ReadFrame()
	})
	p := NewPool(PoolConfig{Address: netip.MustParseAddrPort(addr)})
	defer p.Close()
	ask := func() *Asking {
		a, err := p.Ask(t.Context(), &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}, false)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for range all {
		ask().End()
	}
	last := ask()
	defer last.End()
	if m, err := last.Head(); err != nil || m.Status != 200 {
		t.Errorf("the request after those that were reset: %v, %v", m, err)
	}
}

// lateWriter is a connection whose writes come back late: when the peer has answered, or gone.
type lateWriter struct {
	net.Conn
	late chan struct{}
}

func (c *lateWriter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	<-c.late
	return n, err
}

// TestGoneWhileWriting: who writes has been interrupted after the system call, and what it wrote was worked on. That is not unsent.
func TestGoneWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		late := make(chan struct{}, 1)
		p := NewPool(PoolConfig{Dial: func(context.Context) (net.Conn, error) { return &lateWriter{near, late}, nil }})
		defer p.Close()
		served := make(chan struct{})
		go func() {
			defer close(served)
			defer far.Close()
			_, _ = io.ReadFull(far, make([]byte, len(preface)))
			c := &rawConn{far, http2.NewFramer(far, far)}
			_, _ = c.ReadFrame()
			_, _ = c.ReadFrame()
			late <- struct{}{}
			_ = c.WriteSettings()
			_, _ = c.ReadFrame()
			late <- struct{}{}
			// It works on the request, and dies.
			_ = c.request()
		}()
		a, err := p.Ask(t.Context(), &message.Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/"}, false)
		if err != nil {
			t.Fatal(err)
		}
		<-served
		_, err = a.Head()
		if e := upstream.AsError(err); e.Unsent {
			t.Errorf("%v says that nothing was sent", e)
		}
		close(late)
		a.End()
	})
}

// TestManyTimeouts: a client whose requests are mostly answered gives up hundreds at once, as when an endpoint stalls.
func TestManyTimeouts(t *testing.T) {
	const all = 600
	stall := make(chan struct{})
	defer close(stall)
	r := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			select {
			case <-stall:
			case <-r.Context().Done():
			}
		}
	})))
	client := goClient(t)
	for range all {
		if status, _, _, err := get(t, client, r.addr); err != nil || status != http.StatusOK {
			t.Fatal(status, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+"/stall", nil)
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	testwait.Until(t, "all to be open", func() bool { return r.active() == all })
	cancel()
	wg.Wait()
	testwait.Until(t, "all to have ended", func() bool { return r.active() == 0 })
	if n := r.abused(RapidReset); n > 0 {
		t.Errorf("%d connections were closed for rapid resets", n)
	}
}

// TestSettingsAfterGoAway: a connection that leaves may still change its settings, and does not come back by that.
func TestSettingsAfterGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		dials := 0
		p := NewPool(PoolConfig{Dial: func(context.Context) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, &upstream.Error{Reason: upstream.ConnectRefused, Unsent: true, Unanswered: true}
			}
			return near, nil
		}})
		defer p.Close()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(preface)))
			c := &rawConn{far, http2.NewFramer(far, far)}
			_ = c.WriteSettings()
			id := c.request()
			_ = c.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = c.WriteSettings()
			_, _ = io.Copy(io.Discard, far)
		}()
		m := &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}
		a, err := p.Ask(t.Context(), m, false)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.Ask(ctx, m, false)
		if e := upstream.AsError(err); e.Reason != upstream.ConnectRefused || dials != 2 {
			t.Errorf("the next request: %v after %d dials, want that the second one was refused", err, dials)
		}
		a.End()
		_ = far.Close()
	})
}

// TestTrailersThatWait: trailers that the window holds up outlive the memory they came in.
func TestTrailersThatWait(t *testing.T) {
	var wire [2][]byte
	for i, change := range []bool{false, true} {
		text := []byte("checksum")
		fields := []message.Field{{Name: "x-sum", Value: unsafe.String(&text[0], len(text))}}
		var l link
		near, far := net.Pipe()
		l.init(near, nil, Config{}.withDefaults(), nil)
		l.sendWindow = 0
		f := &flow{owner: nobody{}, id: 1, window: firstWindow}
		var turn Turn
		l.sendData(&turn, f, []byte("body"), false)
		l.sendTrailers(&turn, f, fields)
		if change {
			copy(text, "another!")
		}
		l.sendWindow = firstWindow
		l.refill(&turn)
		wire[i] = slices.Clone(l.out.b)
		_, _ = near.Close(), far.Close()
	}
	if !bytes.Equal(wire[0], wire[1]) {
		t.Errorf("sent %q, want %q", wire[1], wire[0])
	}
}

type nobody struct{}

func (nobody) sentSome(*Turn, int) {}
func (nobody) sentEnd(*Turn)       {}

// replies answers every request so.
type replies string

func (h replies) Request(Ticket, *message.Request) (Decider, Decision) {
	return &rigDecider{rig: &relayRig{}}, Decision{Reply: &Reply{Status: 200, Body: string(h)}}
}

// TestSlowClientAtGoAway: who was told to go gets all of the last answer, however slowly it reads.
func TestSlowClientAtGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 60 << 10
		near, far := net.Pipe()
		v := NewServer(near, nil, replies(make([]byte, size)), Config{})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings()
		_ = c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, EndHeaders: true, EndStream: true,
			BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"),
		})
		v.GoAway()
		time.Sleep(10 * time.Second) // bubble time
		n, whole := 0, false
		for {
			f, err := c.ReadFrame()
			if err != nil {
				break
			}
			if f, ok := f.(*http2.DataFrame); ok {
				n += len(f.Data())
				whole = whole || f.StreamEnded()
			}
		}
		if n != size || !whole {
			t.Errorf("read %d bytes of %d, to the end: %v", n, size, whole)
		}
		_ = far.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSilentCall: gRPC's server takes a client that asks too often whether it is there for a broken one, and closes
// its connection with all that is on it (too_many_pings). A call on which nothing is said for long is none.
func TestSilentCall(t *testing.T) {
	rig := &relayRig{}
	rig.pool.Conn = Config{PingAfter: 20 * time.Millisecond, PingTimeout: 20 * time.Millisecond}
	startRelay(t, rig, startGRPC(t))
	s, err := testgrpc.NewTestServiceClient(dialGRPC(t, rig.addr)).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ping := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}
	for range 2 {
		if err := s.Send(ping); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Second).C
	}
}

// TestGoAwayBeforeSettings: settings come first, whenever the client is told to go (RFC 9113 section 3.4).
func TestGoAwayBeforeSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		v := NewServer(near, nil, replies(""), Config{})
		v.GoAway()
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		go func() {
			_, _ = far.Write([]byte(preface))
			_ = c.WriteSettings()
		}()
		var got []http2.FrameType
		for {
			f, err := c.ReadFrame()
			if err != nil {
				break
			}
			got = append(got, f.Header().Type)
		}
		if len(got) == 0 || got[0] != http2.FrameSettings || !slices.Contains(got, http2.FrameGoAway) {
			t.Errorf("the server sent %v", got)
		}
		_ = far.Close()
		<-ended
	})
}

// TestGoAwayIsBinding: a request that comes after the last one which a GOAWAY named is not served: its client sends it elsewhere.
func TestGoAwayIsBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		asked := 0
		v := NewServer(near, nil, handlerFunc(func() { asked++ }), Config{})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings()
		request := func(id uint32) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true,
				BlockFragment: block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/"),
			})
			synctest.Wait()
		}
		request(1)
		var turn Turn
		v.farewell(&turn, &ConnError{Code: http2.ErrCodeNo, Text: "idle"})
		turn.flush()
		request(3)
		if asked != 1 {
			t.Errorf("%d requests were served, want the one before the GOAWAY", asked)
		}
		_ = far.Close()
		<-ended
	})
}

// handlerFunc is called for every request, which is answered.
type handlerFunc func()

func (h handlerFunc) Request(k Ticket, m *message.Request) (Decider, Decision) {
	h()
	return replies("").Request(k, m)
}

// TestGoAwayWithoutPreface: a client that was told to go before it said a word is not waited for.
func TestGoAwayWithoutPreface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		v := NewServer(near, []byte("PRI"), replies(""), Config{})
		v.GoAway()
		began := time.Now()
		if err := v.Run(t.Context()); err != nil || time.Since(began) > 2*noticeTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		_ = far.Close()
	})
}

// TestRestNeverComes: the endpoint has answered, the client has all of that, and does not send the rest of its request.
func TestRestNeverComes(t *testing.T) {
	backend := scripted(t, nil, func(c *rawConn) {
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.HeadersFrame); ok {
				c.respond(f.StreamID, true, ":status", "200")
			}
		}
	})
	rig := startRelay(t, &relayRig{cfg: Config{BodyTimeout: 40 * time.Millisecond}}, backend)
	c := dialRaw(t, rig.addr)
	_ = c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, EndHeaders: true,
		BlockFragment: block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "5"),
	})
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal("the stream was not ended:", err)
		}
		if f, ok := f.(*http2.RSTStreamFrame); ok {
			if f.ErrCode != http2.ErrCodeNo {
				t.Errorf("it was ended with %s", f.ErrCode)
			}
			break
		}
	}
	testwait.Until(t, "the request has ended", func() bool { return rig.active() == 0 && rig.pools[0].calls() == 0 })
}
