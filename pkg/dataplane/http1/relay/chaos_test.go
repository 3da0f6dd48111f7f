package relay_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

var soak = flag.Duration("soak", time.Second, "how long TestChaos goes on")

// pattern is n bytes that only the request with that id has.
func pattern(id string, n int) []byte { return bytes.Repeat([]byte(id+"/"), n/(len(id)+1)+1)[:n] }

// faulty answers with the pattern of the request's path, of the size that it asks for, in every
// coding there is, checks the request's body, and fails in every way now and then.
func faulty(t *testing.T) string {
	return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			id := strings.TrimPrefix(q.URL.Path, "/")
			size, err := strconv.Atoi(q.URL.Query().Get("n"))
			if err != nil {
				t.Errorf("%s came through as %s", id, q.RequestURI)
				return
			}
			fault := rand.IntN(40)
			switch fault {
			case 0:
				_ = c.SetLinger(0)
				return
			case 1:
				return
			}
			if fault != 2 {
				body, err := io.ReadAll(q.Body)
				if err != nil {
					return
				}
				if !bytes.Equal(body, pattern(id, len(body))) {
					t.Errorf("the request %s has another one's body: %.60q", id, body)
					return
				}
			}
			if fault == 3 {
				_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </"+id+">\r\n\r\n")
			}
			end := !answer(c, id, size, fault)
			if end || fault == 2 || fault == 4 {
				return
			}
		}
	})
}

// answer gives false where the connection must end.
func answer(c net.Conn, id string, size, fault int) bool {
	body := pattern(id, size)
	if fault == 5 {
		body = body[:size/2]
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\nX-Id: " + id + "\r\n")
	coding := rand.IntN(4)
	switch coding {
	case 0:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for len(body) > 0 {
			n := 1 + rand.IntN(len(body))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		if fault != 5 {
			b.WriteString("0\r\nX-Trailer: " + id + "\r\n\r\n")
		}
	case 1:
		if fault == 5 {
			return false // it would look whole
		}
		b.WriteString("\r\n")
		b.Write(body)
	default:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", size, body)
	}
	out := b.Bytes()
	for len(out) > 0 {
		n := min(len(out), 1+rand.IntN(100_000))
		if _, err := c.Write(out[:n]); err != nil {
			return false
		}
		out = out[n:]
	}
	return coding != 1 && fault != 5
}

// Whatever goes wrong, an answer that looks whole is that of its request.
func TestChaos(t *testing.T) {
	var r *rig
	ready := make(chan struct{})
	var served atomic.Int64
	h := handler(func(x *relay.Exchange) {
		<-ready
		served.Add(1)
		switch rand.IntN(50) {
		case 0:
			x.SetDeadline(time.Now().Add(time.Duration(rand.IntN(20)) * time.Millisecond))
		case 1:
			cancel := x.CancelFunc()
			time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cancel(&upstream.Error{Reason: upstream.EndpointEjected}) })
		case 2:
			x.CloseAfter()
		}
		var err error
		for range 5 {
			var conn *relay.Conn
			if conn, err = r.pools[rand.IntN(len(r.pools))].Acquire(x.Context()); err != nil {
				break
			}
			if _, err = x.Send(conn, 0); err == nil {
				if rand.IntN(20) == 0 && x.Replayable() {
					x.Discard()
					continue
				}
				_ = x.Relay(nil)
				return
			}
			if !x.Replayable() {
				break
			}
		}
		text := "discarded too often"
		if err != nil {
			text = err.Error()
		}
		_ = x.Respond(502, nil, text)
	})
	r = start(t, relay.Config{Handler: h}, faulty(t), faulty(t), faulty(t))
	close(ready)
	end := time.Now().Add(*soak)
	var whole, others atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := 0; time.Now().Before(end); j++ {
				chaosClient(r, fmt.Sprintf("c%d-%d", i, j), &whole, &others)
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests were served; %d answers came whole, %d others did not", served.Load(), whole.Load(), others.Load())
	if whole.Load() == 0 {
		t.Error("no answer came whole")
	}
}

// chaosClient sends some requests on one connection, all at once or one after the other, and may go away.
func chaosClient(r *rig, name string, whole, others *atomic.Int64) {
	nc, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(nc)
	n := 1 + rand.IntN(8)
	sizes := make([]int, n)
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for k := range n {
			if !chaosRequest(nc, fmt.Sprintf("%s-%d", name, k)) {
				return
			}
		}
		if rand.IntN(10) == 0 {
			_ = nc.Close()
		}
	}()
	defer func() { <-sending }()
	defer func() { _ = nc.Close() }()
	for k := range sizes {
		id := fmt.Sprintf("%s-%d", name, k)
		resp, err := http.ReadResponse(in, nil)
		for err == nil && resp.StatusCode < 200 {
			if link := resp.Header.Get("Link"); link != "</"+id+">" {
				r.t.Errorf("%s got the hint %s", id, link)
			}
			resp, err = http.ReadResponse(in, nil)
		}
		if err != nil {
			others.Add(1)
			return
		}
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			others.Add(1)
			return
		case resp.StatusCode != 200:
			others.Add(1)
		case resp.Header.Get("X-Id") != id || !bytes.Equal(body, pattern(id, size(id))):
			r.t.Errorf("%s got the answer %s, %d bytes, want %d: %.60q", id, resp.Header.Get("X-Id"), len(body), size(id), body)
			return
		default:
			whole.Add(1)
		}
		if resp.Close {
			return
		}
	}
}

// size is that of the answer to a request.
func size(id string) int {
	h := 0
	for _, c := range []byte(id) {
		h = h*31 + int(c)
	}
	h &= 0xfffffff
	if h%10 == 0 {
		return h % 300_000
	}
	return h % 3000
}

// chaosRequest gives false when it has cut the request short.
func chaosRequest(w io.Writer, id string) bool {
	size := size(id)
	n := rand.IntN(2000)
	if rand.IntN(10) == 0 {
		n = rand.IntN(200_000)
	}
	body := pattern(id, n)
	var b bytes.Buffer
	switch rand.IntN(3) {
	case 0:
		body = nil
		fmt.Fprintf(&b, "GET /%s?n=%d HTTP/1.1\r\nHost: a\r\n\r\n", id, size)
	case 1:
		fmt.Fprintf(&b, "PUT /%s?n=%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", id, size, n)
		b.Write(body)
	default:
		fmt.Fprintf(&b, "PUT /%s?n=%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", id, size)
		for len(body) > 0 {
			n := 1 + rand.IntN(len(body))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		b.WriteString("0\r\n\r\n")
	}
	out := b.Bytes()
	cut := rand.IntN(100) == 0
	if cut {
		out = out[:rand.IntN(len(out))]
	}
	for len(out) > 0 {
		n := min(len(out), 1+rand.IntN(50_000))
		if _, err := w.Write(out[:n]); err != nil {
			return false
		}
		out = out[n:]
	}
	if cut {
		if c, ok := w.(io.Closer); ok {
			_ = c.Close()
		}
	}
	return !cut
}
