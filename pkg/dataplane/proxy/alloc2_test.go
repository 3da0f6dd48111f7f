package proxy_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

const frameHead = 9

// appendFrame appends a frame.
func appendFrame(dst []byte, t http2.FrameType, flags http2.Flags, id uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return append(dst, payload...)
}

// frameReader reads frames and allocates nothing.
type frameReader struct {
	io.Reader
	buf      [64 << 10]byte
	from, to int
}

// next gives a frame's type, flags and stream.
func (r *frameReader) next() (http2.FrameType, http2.Flags, uint32, error) {
	for {
		if have := r.buf[r.from:r.to]; len(have) >= frameHead {
			n := frameHead + (int(have[0])<<16 | int(have[1])<<8 | int(have[2]))
			if len(have) >= n {
				r.from += n
				return http2.FrameType(have[3]), http2.Flags(have[4]), binary.BigEndian.Uint32(have[5:]), nil
			}
		}
		r.to = copy(r.buf[:], r.buf[r.from:r.to])
		r.from = 0
		n, err := r.Read(r.buf[r.to:])
		if err != nil {
			return 0, 0, 0, err
		}
		r.to += n
	}
}

// leanGRPC is an endpoint that answers each call at once and allocates nothing.
func leanGRPC(t testing.TB) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		out := appendFrame(nil, http2.FrameSettings, 0, 0, nil)
		out = appendFrame(out, http2.FrameWindowUpdate, 0, 0, []byte{0x40, 0, 0, 0})
		if _, err := c.Write(out); err != nil {
			return
		}
		// From the second one on it is all in the table.
		head := append([]byte{0x88, 0x40 | 31, 16}, "application/grpc"...)
		trailers := append(append([]byte{0x40, 11}, "grpc-status"...), 1, '0')
		r := &frameReader{Reader: c}
		message := make([]byte, 37)
		for {
			kind, flags, id, err := r.next()
			if err != nil {
				return
			}
			if kind > http2.FrameHeaders || flags&http2.FlagDataEndStream == 0 {
				continue
			}
			out = appendFrame(out[:0], http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, head)
			out = appendFrame(out, http2.FrameData, 0, id, message)
			out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, trailers)
			if _, err := c.Write(out); err != nil {
				return
			}
			head, trailers = append(head[:0], 0x88, 0x80|63), append(trailers[:0], 0x80|62)
		}
	})
}

// caller makes gRPC calls of the proxy, one after another on a connection, and allocates nothing.
type caller struct {
	conn    net.Conn
	r       frameReader
	out     []byte
	request []byte
	message [37]byte
	id      uint32
}

func newCaller(t testing.TB) *caller {
	t.Helper()
	r := newRig(t)
	r.putCluster(&discovery.Cluster{HTTP2: true}, leanGRPC(t), leanGRPC(t), leanGRPC(t))
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &caller{conn: conn, id: 1, out: appendFrame([]byte(http2.ClientPreface), http2.FrameSettings, 0, 0, nil)}
	c.r.Reader = conn
	c.out = appendFrame(c.out, http2.FrameWindowUpdate, 0, 0, []byte{0x40, 0, 0, 0})
	enc := hpack.NewEncoder(blockWriter{&c.request})
	for range 100 {
		c.request = c.request[:0]
		for _, f := range [...]hpack.HeaderField{
			{Name: ":method", Value: "POST"},
			{Name: ":scheme", Value: "http"},
			{Name: ":path", Value: "/grpc.testing.TestService/UnaryCall"},
			{Name: ":authority", Value: "echo:8080"},
			{Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"},
			{Name: "grpc-timeout", Value: "20S"},
		} {
			_ = enc.WriteField(f)
		}
		c.call(t)
	}
	return c
}

type blockWriter struct{ to *[]byte }

func (w blockWriter) Write(p []byte) (int, error) {
	*w.to = append(*w.to, p...)
	return len(p), nil
}

func (c *caller) call(t testing.TB) {
	t.Helper()
	c.out = appendFrame(c.out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, c.id, c.request)
	c.out = appendFrame(c.out, http2.FrameData, http2.FlagDataEndStream, c.id, c.message[:])
	if _, err := c.conn.Write(c.out); err != nil {
		t.Fatal(err)
	}
	c.out = c.out[:0]
	c.id += 2
	for frames := 0; ; {
		kind, flags, _, err := c.r.next()
		if err != nil || kind == http2.FrameRSTStream || kind == http2.FrameGoAway {
			t.Fatal(kind, err)
		}
		if kind <= http2.FrameHeaders {
			frames++
			if flags&http2.FlagDataEndStream != 0 {
				if frames != 3 {
					t.Fatalf("%d frames of an answer", frames)
				}
				return
			}
		}
	}
}

// A gRPC call leaves no garbage, with balancing, deadlines and statistics.
func TestNoAllocationsOfCalls(t *testing.T) {
	c := newCaller(t)
	leavesNoGarbage(t, func() { c.call(t) })
}

// BenchmarkCall relays a unary gRPC call between a client and endpoints that allocate nothing: what is counted is the proxy's.
func BenchmarkCall(b *testing.B) {
	c := newCaller(b)
	b.ReportAllocs()
	for b.Loop() {
		c.call(b)
	}
}
