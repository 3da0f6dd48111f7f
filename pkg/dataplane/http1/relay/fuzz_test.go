package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// script is a client's connection that says what it has to say and then ends.
type script struct {
	in  *bytes.Reader
	max int
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) { return s.in.Read(p[:min(len(p), s.max)]) }

func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// readRequests gives the requests that net/http finds in a stream, each as a line.
func readRequests(r io.Reader, each func(string) error) {
	b := bufio.NewReader(r)
	for {
		q, err := http.ReadRequest(b)
		if err != nil {
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		path := q.RequestURI
		if q.URL.Scheme == "http" && strings.EqualFold(path[:min(len(path), 7)], "http://") {
			// As it came: a URL would be written in another way.
			path = path[len("http://")+len(q.URL.Host):]
			if path == "" && q.Method == http.MethodOptions {
				path = "*"
			} else if path == "" {
				path = "/"
			}
		}
		if each(fmt.Sprintf("%s %s %s %q", q.Method, q.Host, path, body)) != nil {
			return
		}
	}
}

// What comes out at the endpoint is what net/http would have found in the client's bytes, or the beginning of that.
func FuzzRelay(f *testing.F) {
	for _, text := range []string{
		"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloPOST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX: y\r\n\r\nGET /c HTTP/1.0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGET /hidden HTTP/1.1\r\n\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhelloGET http://b/c HTTP/1.1\r\nHost: b\r\nConnection: X, keep-alive\r\nX: y\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nshort",
	} {
		for _, part := range []uint16{1, 7, 0xffff} {
			f.Add([]byte(text), part)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, part uint16) {
		var want, got []string
		readRequests(bytes.NewReader(data), func(s string) error { want = append(want, s); return nil })
		var wg sync.WaitGroup
		pool := relay.NewPool(relay.PoolConfig{Dial: func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			wg.Go(func() {
				defer func() { _ = far.Close() }()
				readRequests(far, func(s string) error {
					got = append(got, s)
					_, err := io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					return err
				})
			})
			return near, nil
		}})
		c := &script{in: bytes.NewReader(data), max: int(part) + 1}
		relay.NewServer(t.Context(), relay.Config{Handler: handler(func(x *relay.Exchange) {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if x.Request().Method == http.MethodConnect {
				conn.Release()
				_ = x.Respond(http.StatusNotImplemented, nil, "")
				x.CloseAfter()
				return
			}
			if _, err = x.Send(conn, 0); err == nil {
				_ = x.Relay(nil)
			}
		})}, c, nil).Serve()
		pool.Close()
		wg.Wait()
		for i := range got {
			if i >= len(want) || got[i] != want[i] {
				t.Fatalf("the endpoint saw\n%q, net/http finds\n%q in\n%q", got, want, data)
			}
		}
	})
}

// readAnswer gives the final response that net/http finds in a stream, and what is behind it.
func readAnswer(b *bufio.Reader, method string) (line, body string, interims int, err error) {
	for {
		r, err := http.ReadResponse(b, &http.Request{Method: method})
		if err != nil {
			return "", "", interims, err
		}
		if r.StatusCode >= 100 && r.StatusCode < 200 && r.StatusCode != http.StatusSwitchingProtocols {
			interims++
			continue
		}
		all, err := io.ReadAll(r.Body)
		// What is announced and does not come is nothing.
		maps.DeleteFunc(r.Trailer, func(_ string, v []string) bool { return len(v) == 0 })
		if len(r.Trailer) == 0 {
			r.Trailer = http.Header{}
		}
		return fmt.Sprintf("%d %q %v", r.StatusCode, all, r.Trailer), string(all), interims, err
	}
}

// What the client gets for one request is the one response that net/http finds in the endpoint's bytes, or an error of ours,
// or something that is visibly not whole; and never a second response.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nX: y\r\n\r\nrest",
		"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.0 200 OK\r\nConnection: X\r\nX: y\r\n\r\nuntil the end",
		"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n",
	} {
		for _, part := range []uint16{1, 7, 0xffff} {
			f.Add([]byte(text), part, false)
			f.Add([]byte(text), part, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, part uint16, head bool) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		pool := relay.NewPool(relay.PoolConfig{Dial: func(context.Context) (net.Conn, error) {
			return &script{in: bytes.NewReader(data), max: int(part) + 1}, nil
		}})
		defer pool.Close()
		c := &script{in: bytes.NewReader([]byte(method + " / HTTP/1.1\r\nHost: a\r\n\r\n")), max: 1000}
		const ours = "this is from the proxy"
		relay.NewServer(t.Context(), relay.Config{Handler: handler(func(x *relay.Exchange) {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := x.Send(conn, 0)
			switch {
			case err != nil || resp.Status == http.StatusSwitchingProtocols:
				_ = x.Respond(http.StatusBadGateway, nil, ours)
			default:
				_ = x.Relay(nil)
			}
		})}, c, nil).Serve()
		b := bufio.NewReader(&c.out)
		got, body, interims, err := readAnswer(b, method)
		if err != nil {
			return
		}
		if rest, _ := io.ReadAll(b); len(rest) > 0 {
			t.Fatalf("behind the answer came %q\nfor %q", rest, data)
		}
		if body == ours || head && got == "502 \"\" map[]" {
			return
		}
		want, _, wantInterims, err := readAnswer(bufio.NewReader(bytes.NewReader(data)), method)
		if err != nil || got != want || interims != wantInterims {
			t.Fatalf("the client saw %s after %d, net/http finds %s after %d, %v\nin %q", got, interims, want, wantInterims, err, data)
		}
	})
}
