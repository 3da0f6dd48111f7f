package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// A bodiless answer, whose head speaks of four bytes.
type bodiless struct {
	method, path string
	status       int
	// body comes all the same over HTTP/1.1.
	body string
	// length is what a client may hear of it.
	length string
}

var bodilessAnswers = []bodiless{
	{"GET", "/204", 204, "", ""},
	{"GET", "/204-body", 204, "body", ""},
	{"GET", "/304", 304, "", "4"},
	{"GET", "/304-body", 304, "body", "4"},
	{"HEAD", "/", 200, "", "4"},
	{"HEAD", "/body", 200, "body", "4"},
}

func bodilessOf(method, path string) (bodiless, bool) {
	for _, b := range bodilessAnswers {
		if b.method == method && b.path == path {
			return b, true
		}
	}
	return bodiless{}, false
}

func bodilessHTTP1(t *testing.T) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			q, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			text := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
			if b, ok := bodilessOf(q.Method, q.URL.Path); ok {
				text = fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\n%s", b.status, b.body)
			}
			_, _ = io.WriteString(c, text)
		}
	})
}

func bodilessHTTP2(t *testing.T) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			h, ok := frame.(*http2.MetaHeadersFrame)
			if !ok {
				continue
			}
			b, bodiless := bodilessOf(h.PseudoValue("method"), h.PseudoValue("path"))
			fields := []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-length", Value: "2"}}
			if bodiless {
				fields = []hpack.HeaderField{{Name: ":status", Value: fmt.Sprint(b.status)}, {Name: "content-length", Value: "4"}}
			}
			var block []byte
			enc := hpack.NewEncoder(blockWriter{&block})
			for _, x := range fields {
				_ = enc.WriteField(x)
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: block, EndHeaders: true, EndStream: bodiless})
			if !bodiless {
				_ = f.WriteData(h.StreamID, true, []byte("ok"))
			}
		}
	})
}

// TestBodilessAnswers: what an endpoint says of a body that must not come, or sends of it, misleads no client, whatever
// the two speak; 204 speaks of none (RFC 9110 section 8.6).
func TestBodilessAnswers(t *testing.T) {
	for name, up := range map[string]struct {
		start func(*testing.T) string
		http2 bool
	}{"endpoint HTTP/1.1": {bodilessHTTP1, false}, "endpoint HTTP/2": {bodilessHTTP2, true}} {
		both(t, func(t *testing.T, down bool) {
			r := newRig(t)
			r.putCluster(&discovery.Cluster{HTTP2: up.http2}, up.start(t))
			tr := transport(down)
			defer tr.CloseIdleConnections()
			get := func(method, path string) *http.Response {
				q, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				q.Host = echo
				resp, err := tr.RoundTrip(q)
				if err != nil {
					t.Fatalf("%s: %s %s: %v", name, method, path, err)
				}
				return resp
			}
			for _, b := range bodilessAnswers {
				resp := get(b.method, b.path)
				// Go's client of HTTP/2 misses a body of 304 that may be spoken of.
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if l := resp.Header.Get("Content-Length"); resp.StatusCode != b.status || len(text) > 0 || l != b.length {
					t.Errorf("%s: %s %s: status %d, length %q, body %q", name, b.method, b.path, resp.StatusCode, l, text)
				}
				resp = get("GET", "/next")
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if string(text) != "ok" || err != nil {
					t.Errorf("%s: after %s %s: %q, %v", name, b.method, b.path, text, err)
				}
			}
		})
	}
}
