package relay_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// A client that has not taken the end of its answer does not keep the endpoint's connection.
func TestGivenBackBeforeTheClientHasAll(t *testing.T) {
	for name, answer := range map[string]string{
		"length":   "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"trailers": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"no body":  "HTTP/1.1 204 No Content\r\n\r\n",
		"empty":    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"too much": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd",
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, relay.Config{}, raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(io.Discard, r)
			}))
			done := make(chan struct{}, 2)
			near, client := net.Pipe()
			served := relay.NewServer(context.Background(), relay.Config{Handler: handler(func(x *relay.Exchange) {
				err := r.send(x)
				if err == nil {
					err = x.Relay(func() { done <- struct{}{} })
				}
				if err != nil {
					t.Error(err)
				}
			})}, near, nil)
			over := make(chan struct{})
			go func() { served.Serve(); close(over) }()
			defer func() { _ = client.Close(); <-over }()
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			// Nothing of the answer has been taken: on a pipe it waits to be written.
			<-done
			kept := 1
			if name == "too much" {
				kept = 0
			}
			if r.pools[0].Open() != kept || r.pools[0].CloseOneIdle() != (kept == 1) {
				t.Error("the connection was not given back")
			}
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != map[bool]string{true: "abc"}[strings.Contains(answer, "abc")] {
				t.Errorf("%q %v", b, err)
			}
			if len(done) > 0 {
				t.Error("said twice")
			}
		})
	}
}
