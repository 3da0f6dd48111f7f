// Command h2 is the HTTP/2 side of the data plane's benchmark: a relay over the
// endpoints that it is given, or an endpoint that answers as a gRPC server does.
//
//	h2 relay LISTEN ENDPOINT...
//	h2 backend LISTEN
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	h2 "github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "h2 relay LISTEN ENDPOINT... | h2 backend LISTEN")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serve := backend
	if os.Args[1] == "relay" {
		if p := os.Getenv("PPROF"); p != "" {
			go func() { _ = http.ListenAndServe(p, nil) }()
		}
		serve = newRelay(os.Args[3:]).serve
	}
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		go serve(nc)
	}
}

type endpoint struct {
	pool   *h2.Pool
	active atomic.Int64
	total  atomic.Int64
}

type relay struct {
	endpoints []*endpoint
	next      atomic.Uint64
	classes   [6]atomic.Int64
	buckets   [16]atomic.Int64
	free      sync.Pool
}

func newRelay(addresses []string) *relay {
	r := &relay{}
	for _, a := range addresses {
		r.endpoints = append(r.endpoints, &endpoint{pool: h2.NewPool(h2.PoolConfig{Address: netip.MustParseAddrPort(a)})})
	}
	r.free.New = func() any { return &exchange{relay: r} }
	return r
}

func (r *relay) serve(nc net.Conn) {
	_ = h2.NewServer(nc, nil, r, h2.Config{}).Run(context.Background())
}

type exchange struct {
	relay  *relay
	on     *endpoint
	began  time.Time
	status int
}

func (r *relay) Request(k h2.Ticket, _ *message.Request) (h2.Exchange, h2.Decision) {
	x := r.free.Get().(*exchange)
	x.began = time.Now()
	k.SetDeadline(x.began.Add(15 * time.Second))
	n := r.next.Add(1)
	a, b := r.endpoints[n%uint64(len(r.endpoints))], r.endpoints[(n+1)%uint64(len(r.endpoints))]
	if b.active.Load() < a.active.Load() {
		a = b
	}
	x.on = a
	a.active.Add(1)
	return x, h2.Decision{To: a.pool}
}

func (x *exchange) Sent() { x.on.total.Add(1) }
func (x *exchange) Response(r *message.Response, _ bool) h2.Decision {
	x.status = r.Status
	return h2.Decision{}
}
func (x *exchange) Trailers([]message.Field)                        {}
func (x *exchange) Failed(*upstream.Error, bool) h2.Decision        { return h2.Decision{} }
func (x *exchange) Expired() *upstream.Error                        { return &upstream.Error{Reason: upstream.Deadline} }
func (x *exchange) Ended(o h2.Outcome) {
	x.on.active.Add(-1)
	x.relay.classes[min(x.status/100, 5)].Add(1)
	took := time.Since(x.began)
	i := 0
	for i < 15 && took > time.Millisecond<<i {
		i++
	}
	x.relay.buckets[i].Add(1)
	x.on, x.status = nil, 0
	x.relay.free.Put(x)
}

// backend answers each request with a message and trailers, as a gRPC server does; it looks at nothing.
func backend(nc net.Conn) {
	defer nc.Close()
	preface := make([]byte, len(h2.Preface))
	if _, err := nc.Read(preface); err != nil {
		return
	}
	var out []byte
	w := writer{&out}
	br := newReader(nc, func() {
		if len(out) > 0 {
			_, _ = nc.Write(out)
			out = out[:0]
		}
	})
	fr := http2.NewFramer(w, br)
	fr.SetReuseFrames()
	var block []byte
	enc := hpack.NewEncoder(writer{&block})
	field := func(n, v string) { _ = enc.WriteField(hpack.HeaderField{Name: n, Value: v}) }
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000})
	_ = fr.WriteWindowUpdate(0, 1<<30)
	body := make([]byte, 5+32)
	body[4] = 32
	received := 0
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		end := false
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = fr.WritePing(true, f.Data)
			}
		case *http2.HeadersFrame:
			end = f.StreamEnded()
		case *http2.DataFrame:
			end = f.StreamEnded()
			received += int(f.Length)
			if received > 1<<20 {
				_ = fr.WriteWindowUpdate(0, uint32(received))
				received = 0
			}
		}
		if !end {
			continue
		}
		id := f.Header().StreamID
		block = block[:0]
		field(":status", "200")
		field("content-type", "application/grpc")
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		_ = fr.WriteData(id, false, body)
		block = block[:0]
		field("grpc-status", "0")
		field("grpc-message", "")
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
	}
}

type writer struct{ to *[]byte }

func (w writer) Write(p []byte) (int, error) {
	*w.to = append(*w.to, p...)
	return len(p), nil
}

// reader calls idle before it waits.
type reader struct {
	nc       net.Conn
	buf      []byte
	from, to int
	idle     func()
}

func newReader(nc net.Conn, idle func()) *reader { return &reader{nc: nc, buf: make([]byte, 64<<10), idle: idle} }

func (r *reader) Read(p []byte) (int, error) {
	if r.from == r.to {
		r.idle()
		n, err := r.nc.Read(r.buf)
		if err != nil {
			return 0, err
		}
		r.from, r.to = 0, n
	}
	n := copy(p, r.buf[r.from:r.to])
	r.from += n
	return n, nil
}
