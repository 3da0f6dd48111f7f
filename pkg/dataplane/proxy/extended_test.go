package proxy_test

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// extended is a client of HTTP/2 that asks for a WebSocket (RFC 8441).
type extended struct {
	t testing.TB
	*http2.Framer
	conn net.Conn
	dec  *hpack.Decoder
}

func newExtended(t testing.TB, addr string) *extended {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &extended{t: t, Framer: http2.NewFramer(conn, conn), conn: conn, dec: hpack.NewDecoder(4096, nil)}
	c.ReadMetaHeaders = c.dec
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = c.WriteSettings()
	var block []byte
	enc := hpack.NewEncoder(blockWriter{&block})
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "CONNECT"},
		{Name: ":protocol", Value: "websocket"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/chat"},
		{Name: ":authority", Value: "echo:8080"},
		{Name: "sec-websocket-version", Value: "13"},
	} {
		_ = enc.WriteField(f)
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
	return c
}

// status gives that of the answer.
func (c *extended) status() string {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			return h.PseudoValue("status")
		}
	}
}

// read reads n bytes, and further to the end of the stream where n is below 0.
func (c *extended) read(n int) string {
	c.t.Helper()
	got := ""
	for n < 0 || len(got) < n {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			got += string(d.Data())
			if d.StreamEnded() {
				return got
			}
		}
		if _, ok := f.(*http2.RSTStreamFrame); ok {
			c.t.Fatalf("reset after %q", got)
		}
	}
	return got
}

func (c *extended) converse() {
	c.t.Helper()
	if got := c.status(); got != "200" {
		c.t.Fatalf("status %s", got)
	}
	if got := c.read(6); got != "hello\n" {
		c.t.Errorf("%q", got)
	}
	_ = c.WriteData(1, false, []byte("one\n"))
	if got := c.read(4); got != "one\n" {
		c.t.Errorf("%q", got)
	}
	_ = c.WriteData(1, true, []byte("two\n"))
	if got := c.read(-1); got != "two\n" {
		c.t.Errorf("%q", got)
	}
}

// TestExtendedConnectToHTTP1: an endpoint of HTTP/1.1 sees the upgrade that it knows.
func TestExtendedConnectToHTTP1(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		key := q.Header.Get("Sec-Websocket-Key")
		if q.Method != http.MethodGet || q.Header.Get("Upgrade") != "websocket" || q.Header.Get("Sec-Websocket-Version") != "13" || len(key) != 24 || q.URL.Path != "/chat" {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\nhello\n", base64.StdEncoding.EncodeToString(sum[:]))
		_, _ = io.Copy(c, buf)
	}).addr)
	newExtended(t, r.addr).converse()
}

// TestExtendedConnectRefused: a refusal is an answer as any other. A wrong change of protocols is none, and neither is a
// page in place of one: over HTTP/2 its status would say that the protocol has changed (RFC 8441 section 5).
func TestExtendedConnectRefused(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage":    "502",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n": "403",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: of another\r\n\r\nhello\n": "502",
	} {
		r := newRig(t)
		r.put(acceptor(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
		}))
		if got := newExtended(t, r.addr).status(); got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	}
}

// TestExtendedConnectToHTTP2: to an endpoint of HTTP/2 it passes as it is.
func TestExtendedConnectToHTTP2(t *testing.T) {
	r := newRig(t)
	settings := []http2.Setting{{ID: http2.SettingEnableConnectProtocol, Val: 1}}
	r.putCluster(&discovery.Cluster{HTTP2: true}, frameServer(t, settings, func(f *http2.Framer, h *http2.HeadersFrame, _ net.Conn) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true})
		_ = f.WriteData(h.StreamID, false, []byte("hello\n"))
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				_ = f.WriteData(h.StreamID, d.StreamEnded(), d.Data())
			}
		}
	}))
	newExtended(t, r.addr).converse()
}
