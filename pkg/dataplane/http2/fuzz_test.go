package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// tape is a connection on which everything has been said, and that keeps what is written.
type tape struct {
	in  bytes.Reader
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (c *tape) Read(p []byte) (int, error) { return c.in.Read(p[:min(len(p), 300)]) }

func (c *tape) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}
func (c *tape) Close() error                     { return nil }
func (c *tape) LocalAddr() net.Addr              { return nil }
func (c *tape) RemoteAddr() net.Addr             { return nil }
func (c *tape) SetDeadline(time.Time) error      { return nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

// frames makes frames of what the fuzzer gives: most of them almost right, so that it gets far.
func frames(data []byte, lists [][]byte) []byte {
	if len(data) > 0 && data[0] == 0xff {
		return data[1:]
	}
	out := appendSettings(nil)
	for len(data) >= 4 {
		kind, flags, id, n := http2.FrameType(data[0]%11), http2.Flags(data[1]), uint32(data[2]%24), int(data[3])
		data = data[4:]
		n = min(n, len(data))
		payload := data[:n]
		data = data[n:]
		if kind == http2.FrameHeaders && flags&0x40 != 0 {
			payload = lists[n%len(lists)]
			flags = flags&http2.FlagHeadersEndStream | http2.FlagHeadersEndHeaders
		}
		if kind == http2.FrameData && flags&0x40 != 0 {
			payload = make([]byte, n*64)
			flags &= http2.FlagDataEndStream
		}
		out = append(appendHead(out, len(payload), kind, flags, id), payload...)
	}
	return out
}

// judge reads what was written: frames in order, lists that can be read, nothing after the end of a stream.
func judge(t *testing.T, written []byte) {
	t.Helper()
	fr := http2.NewFramer(io.Discard, bytes.NewReader(written))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	over := map[uint32]bool{}
	for {
		f, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			// A connection that is over may be cut anywhere.
			return
		}
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if over[id] {
				t.Fatalf("HEADERS on stream %d after its end", id)
			}
			over[id] = f.StreamEnded()
		case *http2.DataFrame:
			if over[id] {
				t.Fatalf("DATA on stream %d after its end", id)
			}
			over[id] = f.StreamEnded()
		case *http2.RSTStreamFrame:
			over[id] = true
		}
	}
}

// echo is an endpoint without a connection: it sends a body back. It says that
// it took half of what comes at once, and the rest when its turn ends.
type echo struct {
	mu   sync.Mutex // guards next and all
	next uint64
	all  map[uint64]*echoCall
}

type echoCall struct {
	e         *echo
	near      Near
	nearToken uint64
}

type echoEvent struct {
	k    *echoCall
	do   func(t *Turn, k *echoCall)
	late int
}

func (e echoEvent) Flush(t *Turn) { e.do(t, e.k) }

func (e *echo) Open(t *Turn, near Near, token uint64, r *message.Request, end, _ bool) (Far, uint64, error) {
	switch r.Path {
	case "/refused":
		return nil, 0, &upstream.Error{Reason: upstream.ConnectRefused, Unsent: true}
	case "/failed":
		t.add(echoEvent{&echoCall{near: near, nearToken: token}, func(t *Turn, k *echoCall) {
			k.near.Failed(t, k.nearToken, &upstream.Error{Reason: upstream.ResetBeforeHeaders})
		}, 0})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	k := &echoCall{e, near, token}
	e.all[e.next] = k
	t.add(echoEvent{k, func(t *Turn, k *echoCall) {
		k.near.Response(t, k.nearToken, &message.Response{Status: 103}, false)
		k.near.Response(t, k.nearToken, &message.Response{Status: 200, Length: -1}, end)
	}, 0})
	return k, e.next, nil
}
func (e *echo) Cancel(Near, uint64) {}

func (k *echoCall) Data(t *Turn, _ uint64, p []byte, end bool) int {
	kept := bytes.Clone(p)
	half := len(p) / 2
	t.add(echoEvent{k, func(t *Turn, k *echoCall) {
		k.near.Consumed(t, k.nearToken, len(p)-half)
		k.near.Data(t, k.nearToken, kept, end)
	}, 0})
	return half
}

func (k *echoCall) Trailers(t *Turn, _ uint64, fields []message.Field) {
	kept := append([]message.Field(nil), fields...)
	t.add(echoEvent{k, func(t *Turn, k *echoCall) { k.near.Trailers(t, k.nearToken, kept) }, 0})
}
func (k *echoCall) Consumed(*Turn, uint64, int)          {}
func (k *echoCall) Reset(*Turn, uint64, *upstream.Error) {}

// to sends everything to one Opener, and counts.
type to struct {
	opener       Opener
	mu           sync.Mutex // guards begun and ended
	begun, ended int
}

func (h *to) Request(Ticket, *message.Request) (Decider, Decision) {
	h.mu.Lock()
	h.begun++
	h.mu.Unlock()
	return toDecider{h}, Decision{To: h.opener}
}

type toDecider struct{ h *to }

func (toDecider) Sent() *upstream.Error                     { return nil }
func (toDecider) Response(*message.Response, bool) Decision { return Decision{} }
func (toDecider) Trailers([]message.Field) Decision         { return Decision{} }
func (toDecider) Failed(*upstream.Error, bool) Decision     { return Decision{} }
func (toDecider) Expired() (*upstream.Error, bool)          { return nil, false }
func (x toDecider) Ended(Outcome) {
	x.h.mu.Lock()
	x.h.ended++
	x.h.mu.Unlock()
}

var requestLists = [][]byte{
	getBlock(), getBlock("content-length", "64"), getBlock("connection", "x"),
	block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/refused"),
	block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/failed", "content-type", "application/grpc"),
	block("trailer-field", "x"), block(":method", "CONNECT", ":authority", "a:80"),
}

// FuzzServer: whatever a client says, what it is answered is HTTP/2, every
// request ends once, and nothing is left over.
func FuzzServer(f *testing.F) {
	f.Add([]byte{1, 0x41, 1, 0, 1, 0x40, 3, 1, 0, 0x41, 3, 1})
	f.Add([]byte{1, 0x40, 1, 0, 0, 0x40, 1, 200, 1, 0x41, 1, 5, 3, 0, 1, 4, 0, 0, 0, 8})
	f.Add([]byte{4, 0, 0, 6, 0, 4, 0, 0, 0, 9, 1, 0x40, 1, 0, 0, 0x41, 1, 200, 8, 0, 1, 4, 0, 0, 1, 0})
	f.Add([]byte{1, 0x41, 1, 3, 1, 0x41, 3, 4, 1, 0x41, 5, 2, 6, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &tape{}
		c.in.Reset(append([]byte(preface), frames(data, requestLists)...))
		h := &to{opener: &echo{all: map[uint64]*echoCall{}}}
		v := NewServer(c, nil, h, Config{MaxStreams: 8, MaxHeaderBytes: 2000, StreamWindow: 20_000, ConnWindow: 100_000, ReplayBytes: 1000})
		_ = v.Run(context.Background())
		judge(t, c.out.Bytes())
		if h.begun != h.ended {
			t.Fatalf("%d requests began, %d ended", h.begun, h.ended)
		}
		if v.buffered != 0 || len(v.streams) != 0 {
			t.Fatalf("%d bytes held, %d streams open", v.buffered, len(v.streams))
		}
	})
}

// observed is a Near that checks the order of what it hears.
type observed struct {
	t     *testing.T
	mu    sync.Mutex // guards all below
	token uint64
	head  bool
	over  bool
}

func (o *observed) event(token uint64, what string) bool {
	if token != o.token {
		o.t.Errorf("%s with token %d of %d", what, token, o.token)
	}
	if o.over {
		o.t.Errorf("%s after the end", what)
	}
	return true
}

func (o *observed) Ready(*Turn, uint64) {}

func (o *observed) Failed(_ *Turn, token uint64, e *upstream.Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// After a whole answer only the rest of the request can fail.
	if o.over && o.head {
		return
	}
	o.event(token, "Failed: "+e.Error())
	o.over = true
}

func (o *observed) Response(_ *Turn, token uint64, r *message.Response, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.event(token, "Response")
	if o.head {
		o.t.Error("a second head")
	}
	o.head, o.over = r.Status >= 200, end
}

func (o *observed) Data(t *Turn, token uint64, p []byte, end bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.event(token, "Data")
	if !o.head {
		o.t.Error("data before the head")
	}
	o.over = end
	return len(p)
}

func (o *observed) Trailers(_ *Turn, token uint64, _ []message.Field) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.event(token, "Trailers")
	o.over = true
}

func (o *observed) Consumed(*Turn, uint64, int) {}

// opening opens calls as soon as the endpoint's settings came.
type opening struct {
	calls []*observed
	once  sync.Once
}

func (o *opening) connReady(t *Turn, c *endpointConn, _ bool) {
	o.once.Do(func() {
		for i, n := range o.calls {
			n.token = uint64(i + 100)
			k, token, err := c.open(t, n, n.token, &message.Request{Method: []string{"POST", "HEAD", "GET"}[i%3], Scheme: "http", Authority: "a", Path: "/"}, i%2 == 1)
			if err != nil || k == nil {
				n.over, n.head = true, true
				continue
			}
			if i%2 == 0 {
				k.Data(t, token, make([]byte, 30_000*(i%3)), i%4 == 0)
			}
		}
	})
}
func (o *opening) wanted() bool                                     { return false }
func (o *opening) Flush(*Turn)                                      {}
func (o *opening) connLeaves(*Turn, *endpointConn, *upstream.Error) {}

var responseLists = [][]byte{
	block(":status", "200"), block(":status", "200", "content-length", "64"), block(":status", "103"), block(":status", "101"),
	block("grpc-status", "0"), block(":status", "304"), block("x", "y", ":status", "200"),
}

// FuzzClient: whatever an endpoint says, what it is answered is HTTP/2, and
// every call hears an answer in order, with one end.
func FuzzClient(f *testing.F) {
	f.Add([]byte{1, 0x40, 1, 0, 0, 0x41, 1, 1, 1, 0x41, 3, 0, 1, 0x40, 5, 0, 1, 0x41, 5, 4})
	f.Add([]byte{4, 0, 0, 6, 0, 4, 0, 1, 0, 0, 8, 0, 0, 4, 0, 1, 0, 0, 1, 0x40, 1, 0, 3, 0, 1, 4, 0, 0, 0, 7})
	f.Add([]byte{7, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0x41, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &tape{}
		c.in.Reset(frames(data, responseLists))
		o := &opening{}
		for range 8 {
			o.calls = append(o.calls, &observed{t: t})
		}
		cfg := Config{MaxHeaderBytes: 2000, StreamWindow: 20_000, ConnWindow: 100_000}.withDefaults()
		k := newEndpointConn(c, netip.AddrPort{}, cfg, o)
		_ = k.run(context.Background())
		if len(k.calls) != 0 {
			t.Fatalf("%d calls are left", len(k.calls))
		}
		out := c.out.Bytes()
		judge(t, out[min(len(preface), len(out)):])
		for i, n := range o.calls {
			if n.token != 0 && !n.over {
				t.Errorf("call %d never ended", i)
			}
		}
	})
}
