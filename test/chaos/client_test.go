package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// kind is how a client speaks.
type kind string

const (
	plain     kind = "HTTP/1.1"
	plain2    kind = "HTTP/2"
	unary     kind = "gRPC"
	streaming kind = "gRPC stream"
	websocket kind = "WebSocket"
	tcp       kind = "TCP"
)

// sent is one request, as its client saw it.
type sent struct {
	// id is that of the request; key is what its line in the access log is found by.
	id, key string
	kind    kind
	service string
	span
	// deadline is that which the client told the proxy; 0 for none.
	deadline time.Duration

	// ok: the answer came, whole and right.
	ok bool
	// begun: the answer's headers came, or for tunnels the tunnel.
	begun bool
	// ended: what came ended in order, so that an answer that is wrong is the upstream's own.
	ended  bool
	status string
	// proxyStatus and line are what the proxy said of a failure of its own.
	proxyStatus, line string
	err               error
}

func (s *sent) String() string {
	return fmt.Sprintf("%s %s to %s at %s for %s: ok=%v begun=%v ended=%v status=%q Proxy-Status=%q err=%v",
		s.kind, s.id, s.service, s.from.Format("15:04:05.000"), s.to.Sub(s.from).Round(time.Millisecond), s.ok, s.begun, s.ended, s.status, s.proxyStatus, s.err)
}

// client sends one request after the other, or several at a time over HTTP/2, on one connection.
type client struct {
	*world
	kind    kind
	service string
	// deadline is for gRPC.
	deadline time.Duration
	cc       *http.ClientConn
	// shared: cc is somebody else's, who closes it.
	shared bool
}

// patience is longer than anything that the proxy promises to answer within.
const patience = 15 * time.Second

func transport(http2 bool) *http.Transport {
	var p http.Protocols
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return &http.Transport{Protocols: &p, DisableCompression: true}
}

// send makes one request. It gives nil when the context ended before it was sent.
func (c *client) send(ctx context.Context) *sent {
	id := fmt.Sprintf("%d", c.ids.Add(1))
	s := &sent{id: id, key: id, kind: c.kind, service: c.service, deadline: c.deadline}
	s.from = time.Now()
	switch c.kind {
	case plain, plain2, unary, streaming:
		c.http(ctx, s)
	case websocket:
		c.tunnel(s, c.proxy.Outbound, fmt.Sprintf("GET /chaos/%s HTTP/1.1\r\nHost: %s:8080\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id, c.service))
	case tcp:
		c.tunnel(s, c.proxy.Listens[cluster(c.service)], "")
	}
	s.to = time.Now()
	return s
}

func (c *client) request(ctx context.Context, s *sent) *http.Request {
	path := "/chaos/" + s.id
	method, body := http.MethodGet, ""
	switch s.kind { //nolint:exhaustive // the others are no requests of HTTP
	case unary:
		method, body = http.MethodPost, string(message("ask"))
	case streaming:
		method, body = http.MethodPost, string(message("ask"))
		path += []string{"/stream", "/stream", "/long"}[rand.IntN(3)]
	default:
		if rand.IntN(3) == 0 {
			method, body = http.MethodPost, strings.Repeat("x", 1+rand.IntN(100<<10))
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://"+c.proxy.Outbound+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	// Nothing may send it again.
	q.GetBody = nil
	q.Host = s.service + ":8080"
	if s.kind == unary || s.kind == streaming {
		q.Header.Set("Content-Type", "application/grpc")
		q.Header.Set("Te", "trailers")
		if s.deadline > 0 {
			q.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", s.deadline.Milliseconds()))
		}
	}
	return q
}

func (c *client) http(ctx context.Context, s *sent) {
	if !c.connect(ctx) {
		s.err = errors.New("no connection to the proxy")
		return
	}
	limit := patience
	if rand.IntN(50) == 0 {
		// This one does not wait long.
		limit = time.Duration(rand.IntN(100)) * time.Millisecond
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer func() {
		// With all patience this is a failure of its own: only a machine without time explains it.
		if bounded.Err() != nil && limit < patience {
			c.did("", s.id, left)
		}
	}()
	resp, err := c.cc.RoundTrip(c.request(bounded, s))
	if err != nil {
		s.err = err
		c.close()
		return
	}
	defer func() { _ = resp.Body.Close() }()
	s.begun, s.status = true, resp.Status
	b, err := io.ReadAll(resp.Body)
	s.err, s.ended = err, err == nil
	h := resp.Header
	if resp.Trailer.Get("Grpc-Status") != "" {
		h = resp.Trailer
	}
	s.proxyStatus, s.line = h.Get("Proxy-Status"), h.Get("Grpc-Message")
	switch {
	case s.kind == unary || s.kind == streaming:
		s.status = "grpc " + h.Get("Grpc-Status")
		s.ok = s.ended && s.status == "grpc 0"
		// A stream that breaks off without a status has not ended.
		s.ended = s.ended && h.Get("Grpc-Status") != ""
	case s.proxyStatus != "":
		s.line = strings.TrimSpace(string(b))
	default:
		s.ok = s.ended && resp.StatusCode == http.StatusOK && string(b) == s.id
	}
	if resp.Close || err != nil && s.kind == plain {
		c.close()
	}
}

// connect sees to it that there is a connection to the proxy.
func (c *client) connect(ctx context.Context) bool {
	if c.cc != nil && c.cc.Err() == nil {
		return true
	}
	c.shared = false
	cc, err := transport(c.kind != plain).NewClientConn(context.WithoutCancel(ctx), "http", c.proxy.Outbound)
	if err != nil {
		c.t.Errorf("connect to the proxy: %v", err)
		return false
	}
	c.cc = cc
	return true
}

func (c *client) close() {
	if c.cc != nil && !c.shared {
		_ = c.cc.Close()
		c.cc = nil
	}
}

// reuse lets a socket have a port that one of an earlier run still holds in TIME_WAIT.
func reuse(_, _ string, c syscall.RawConn) (err error) {
	if failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }); failed != nil {
		return failed
	}
	return err
}

// tunnel sends lines and wants them back, after the answer to head if there is one.
func (c *client) tunnel(s *sent, address, head string) {
	var dialer net.Dialer
	if s.kind == tcp {
		// Its line in the log has the client's address, also when the dial does not give one because the reset was there first.
		own := &net.TCPAddr{IP: net.IPv4(127, 77, 2, 1), Port: int(10_000 + c.ports.Add(1)%50_000)}
		dialer.LocalAddr, s.key = own, own.String()
		dialer.Control = reuse
	}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		s.err = err
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(conn)
	if head != "" {
		if done := s.upgrade(conn, r, head); done {
			return
		}
	}
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	for n := range 6 {
		line := s.id + "\n"
		if _, s.err = io.WriteString(conn, line); s.err != nil {
			c.givesUp(s, s.err)
			return
		}
		got, err := r.ReadString('\n')
		if err != nil {
			c.givesUp(s, err)
			s.err, s.ended = err, errors.Is(err, io.EOF)
			return
		}
		s.begun = true
		if got != line {
			s.ended, s.err = true, fmt.Errorf("%q came back", got)
			return
		}
		if n < 5 {
			wait(nil, time.Duration(rand.IntN(100))*time.Millisecond)
		}
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		c.givesUp(s, err)
		s.err = fmt.Errorf("after the end: %w", err)
		return
	}
	s.ok, s.ended = true, true
}

// givesUp notes that the client goes away if err is that of its time being over.
func (c *client) givesUp(s *sent, err error) {
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		c.did("", s.id, left)
	}
}

// upgrade asks for another protocol; done tells that there is no tunnel.
func (s *sent) upgrade(conn net.Conn, r *bufio.Reader, head string) (done bool) {
	if _, s.err = io.WriteString(conn, head); s.err != nil {
		return true
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.err = err
		return true
	}
	s.begun, s.status = true, resp.Status
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	s.err, s.ended = err, err == nil
	s.proxyStatus, s.line = resp.Header.Get("Proxy-Status"), strings.TrimSpace(string(b))
	return true
}
