package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
		if q.URL.Scheme != "" {
			path = q.URL.RequestURI()
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
		for _, max := range []uint16{1, 7, 0xffff} {
			f.Add([]byte(text), max)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, max uint16) {
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
		c := &script{in: bytes.NewReader(data), max: int(max) + 1}
		relay.NewClient(t.Context(), relay.Config{Handler: handler(func(x *relay.Exchange) {
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
				_ = x.Relay()
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
