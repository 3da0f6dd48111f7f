package http2

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// plain is a Handler and a Decider that allocates nothing.
type plain struct{ pool *Pool }

func (p *plain) Request(Ticket, *message.Request) (Decider, Decision) {
	return p, Decision{To: p.pool}
}
func (*plain) Sent() *upstream.Error                     { return nil }
func (*plain) Response(*message.Response, bool) Decision { return Decision{} }
func (*plain) Trailers([]message.Field) Decision         { return Decision{} }
func (*plain) Failed(*upstream.Error, bool) Decision     { return Decision{} }
func (*plain) Expired() (*upstream.Error, bool)          { return nil, false }
func (*plain) Ended(Outcome)                             {}

// canned writes what it has for each request that ends on nc.
func canned(nc net.Conn, answer func(id uint32) []byte) {
	defer nc.Close()
	if _, err := io.ReadFull(nc, make([]byte, len(preface))); err != nil {
		return
	}
	fr := http2.NewFramer(nc, nc)
	fr.SetReuseFrames()
	_ = fr.WriteSettings()
	_ = fr.WriteWindowUpdate(0, 1<<30)
	head, payload := make([]byte, headLen), make([]byte, frameSize)
	for {
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if _, err := io.ReadFull(nc, payload[:n]); err != nil {
			return
		}
		kind, id := http2.FrameType(head[3]), binary.BigEndian.Uint32(head[5:])
		if (kind == http2.FrameData || kind == http2.FrameHeaders) && head[4]&1 != 0 {
			_, _ = nc.Write(answer(id))
		}
	}
}

// BenchmarkUnary is one gRPC call after another on one connection: frames that
// are made in advance, so that what it allocates is the relay's.
func BenchmarkUnary(b *testing.B) {
	b.ReportAllocs()
	roundTrips(b, b.N)
}

// TestUnaryAllocatesNothing: a call in steady state costs no allocation.
func TestUnaryAllocatesNothing(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	const n = 2000
	roundTrips(t, 200)
	var before, after runtime.MemStats
	var counted uint64
	// The collector's own work, and that of other tests' remains, is in the count.
	for range 3 {
		runtime.ReadMemStats(&before)
		roundTrips(t, 10)
		runtime.ReadMemStats(&after)
		setUp := after.Mallocs - before.Mallocs
		runtime.ReadMemStats(&before)
		roundTrips(t, n)
		runtime.ReadMemStats(&after)
		if counted = after.Mallocs - before.Mallocs; counted < setUp+n/10 {
			return
		}
	}
	t.Errorf("%d allocations for %d calls", counted, n)
}

// roundTrips makes n calls through a relay.
func roundTrips(t testing.TB, n int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	answer := make([]byte, 37)
	out := make([]byte, 0, 200)
	wg.Go(func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		first := true
		canned(nc, func(id uint32) []byte {
			out = out[:0]
			if first {
				// Into the table: what follows is by index.
				first = false
				block := append([]byte{0x88, 0x40 | 31, 16}, "application/grpc"...)
				out = append(appendHead(out, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders, id), block...)
				out = appendData(out, id, answer, false)
				block = append([]byte{0x40, 11}, "grpc-status"...)
				block = append(block, 1, '0')
				return append(appendHead(out, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id), block...)
			}
			out = append(appendHead(out, 2, http2.FrameHeaders, http2.FlagHeadersEndHeaders, id), 0x88, 0x80|63)
			out = appendData(out, id, answer, false)
			return append(appendHead(out, 1, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id), 0x80|62)
		})
	})
	pool := NewPool(PoolConfig{Address: netip.MustParseAddrPort(l.Addr().String())})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if nc, err := front.Accept(); err == nil {
			_ = NewServer(nc, nil, &plain{pool}, Config{}).Run(t.Context())
		}
	})
	client, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	calls(t, client, n)
	_ = client.Close()
	_, _ = front.Close(), l.Close()
	pool.Close()
	wg.Wait()
}

// calls makes n calls, one after another.
func calls(t testing.TB, nc net.Conn, n int) {
	t.Helper()
	var block []byte
	enc := hpack.NewEncoder(blockWriter{&block})
	request := func() []byte {
		block = block[:0]
		for _, f := range [...]hpack.HeaderField{
			{Name: ":method", Value: "POST"},
			{Name: ":scheme", Value: "http"},
			{Name: ":path", Value: "/grpc.testing.TestService/UnaryCall"},
			{Name: ":authority", Value: "a"},
			{Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"},
		} {
			_ = enc.WriteField(f)
		}
		return block
	}
	out := appendSettings([]byte(preface))
	out = appendWindowUpdate(out, 0, 1<<30)
	body := make([]byte, 37)
	in, have := make([]byte, 64<<10), 0
	for i := range n {
		id := uint32(2*i + 1)
		b := request()
		out = append(appendHead(out, len(b), http2.FrameHeaders, http2.FlagHeadersEndHeaders, id), b...)
		out = appendData(out, id, body, true)
		if _, err := nc.Write(out); err != nil {
			t.Fatal(err)
		}
		out = out[:0]
		for done := false; !done; {
			got, err := nc.Read(in[have:])
			if err != nil {
				t.Fatal(err)
			}
			have += got
			at := 0
			for have-at >= headLen {
				size := headLen + (int(in[at])<<16 | int(in[at+1])<<8 | int(in[at+2]))
				if have-at < size {
					break
				}
				kind := http2.FrameType(in[at+3])
				if kind == http2.FrameRSTStream || kind == http2.FrameGoAway {
					t.Fatalf("%v", in[at:at+size])
				}
				done = done || kind <= http2.FrameHeaders && in[at+4]&1 != 0
				at += size
			}
			have = copy(in, in[at:have])
		}
	}
}

type blockWriter struct{ to *[]byte }

func (w blockWriter) Write(p []byte) (int, error) {
	*w.to = append(*w.to, p...)
	return len(p), nil
}
