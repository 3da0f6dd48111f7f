package relay_test

import (
	"bytes"
	"io"
	"net"
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
func (*pieces) RemoteAddr() net.Addr              { return &net.TCPAddr{} }
func (*pieces) Write(p []byte) (n int, err error) { return len(p), nil }

// TestHeadByteByByte: a head of many lines that comes byte by byte is not read from its beginning for each: a few such
// clients would keep a processor busy.
func TestHeadByteByByte(t *testing.T) {
	head := append([]byte("GET / HTTP/1.1\r\n"), bytes.Repeat([]byte("a:\r\n"), 15<<10)...)
	took := func(size int) time.Duration {
		c := relay.NewServer(t.Context(), relay.Config{Limits: http1.Limits{Fields: 1 << 20}}, &pieces{text: head, size: size}, nil)
		began := time.Now()
		c.Serve()
		return time.Since(began)
	}
	once := min(took(len(head)), took(len(head)), took(len(head)))
	// From its beginning for each byte it is more than 20,000 times as much.
	if each := took(1); each > 5000*once {
		t.Errorf("%s at once, %s byte by byte", once, each)
	}
}
