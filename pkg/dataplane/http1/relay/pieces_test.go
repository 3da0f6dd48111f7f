package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// pieces is a client that says what it has to say in pieces of a size.
type pieces struct {
	net.Conn
	text []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func (*pieces) Close() error                      { return nil }
func (*pieces) SetDeadline(time.Time) error       { return nil }
func (*pieces) SetReadDeadline(time.Time) error   { return nil }
func (*pieces) SetWriteDeadline(time.Time) error  { return nil }
func (*pieces) RemoteAddr() net.Addr              { return &net.TCPAddr{} }
func (*pieces) Write(p []byte) (n int, err error) { return len(p), nil }

// manyLines is a head of that many fields, and the one for the host.
const fields = 15 << 10

var manyLines = append([]byte("GET / HTTP/1.1\r\nHost: a\r\n"), append(bytes.Repeat([]byte("a:\r\n"), fields), "\r\n"...)...)

func serveInPieces(ctx context.Context, size int, h relay.Handler) {
	limits := http1.Limits{Bytes: 1 << 20, Fields: 1 << 20}
	relay.NewServer(ctx, relay.Config{Limits: limits, Handler: h}, &pieces{text: manyLines, size: size}, nil).Serve()
}

// A head is the same in however many pieces it comes.
func TestHeadInPieces(t *testing.T) {
	for _, size := range []int{1, 7, 1000, len(manyLines)} {
		got := 0
		serveInPieces(t.Context(), size, handler(func(x *relay.Exchange) {
			got += len(x.Request().Fields)
			_ = x.Respond(http.StatusOK, nil, "")
		}))
		if got != fields {
			t.Errorf("in pieces of %d: %d fields, want %d", size, got, fields)
		}
	}
}

// What a head costs that comes byte by byte: it must not be read from its beginning for each, or a few such clients keep
// a processor busy. (http1.TestUnfinished says that it need not be.)
func BenchmarkHeadInPieces(b *testing.B) {
	for _, size := range []int{1, len(manyLines)} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				serveInPieces(b.Context(), size, handler(func(x *relay.Exchange) { _ = x.Respond(http.StatusOK, nil, "") }))
			}
		})
	}
}
