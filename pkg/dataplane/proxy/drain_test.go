package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
)

// framed is an HTTP/2 client by hand.
type framed struct {
	t    testing.TB
	conn net.Conn
	*http2.Framer
	head bytes.Buffer
	enc  *hpack.Encoder
}

func (r *rig) framed() *framed {
	r.t.Helper()
	c := &framed{t: r.t, conn: r.dial(r.addr)}
	c.enc = hpack.NewEncoder(&c.head)
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c.conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// get opens a stream for a GET.
func (c *framed) get(stream uint32) {
	c.t.Helper()
	c.head.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/"},
		{Name: ":authority", Value: echo},
	} {
		if err := c.enc.WriteField(f); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.head.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		c.t.Fatal(err)
	}
}

// next gives the next frame that is a response's header or a GOAWAY; nil at the end of the connection.
func (c *framed) next() http2.Frame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "reset") {
			return nil
		}
		if err != nil {
			c.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame, *http2.GoAwayFrame:
			return f
		}
	}
}

// A GOAWAY comes at once and names no stream; what its client sent before it
// knew is served, and only then the connection ends (RFC 9113 section 6.8).
func TestGoAwayLosesNothing(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", nil).addr)
	c := r.framed()
	c.get(1)
	if f, ok := c.next().(*http2.MetaHeadersFrame); !ok || f.StreamID != 1 {
		t.Fatalf("%v", f)
	}
	r.tracker.Drain()
	if f, ok := c.next().(*http2.GoAwayFrame); !ok || f.LastStreamID != 1<<31-1 || f.ErrCode != http2.ErrCodeNo {
		t.Fatalf("%v", f)
	}
	c.get(3)
	if f, ok := c.next().(*http2.MetaHeadersFrame); !ok || f.StreamID != 3 || f.PseudoValue("status") != "200" {
		t.Fatalf("%v", f)
	}
	if f, ok := c.next().(*http2.GoAwayFrame); !ok || f.LastStreamID != 3 {
		t.Fatalf("%v", f)
	}
	if f := c.next(); f != nil {
		t.Errorf("it goes on: %v", f)
	}
}

// GOAWAY does not wait for the stream that has begun, nor does it harm it.
func TestGoAwayDuringAStream(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.put(newBackend(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		for range 200 {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = http.NewResponseController(w).Flush()
		}
		<-release
		_, _ = io.WriteString(w, "end")
	}).addr)
	c := r.framed()
	c.get(1)
	_ = c.WriteWindowUpdate(0, 1<<20)
	_ = c.WriteWindowUpdate(1, 1<<20)
	got, told := 0, false
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got += len(f.Data())
			r.tracker.Drain()
			if f.StreamEnded() {
				if !told || got != 200_003 {
					t.Errorf("told %v, %d bytes", told, got)
				}
				return
			}
		case *http2.GoAwayFrame:
			if !told {
				told = true
				close(release)
			}
		}
	}
}

// HTTP/1.1 clients that are idle are let go, those at work with their next response.
func TestDrainOfHTTP1(t *testing.T) {
	r := newRig(t)
	entered, release := make(chan struct{}), make(chan struct{})
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			close(entered)
			<-release
		}
		_, _ = io.WriteString(w, "a")
	}).addr)
	idle, busy := r.dial(r.addr), r.dial(r.addr)
	bi, bb := bufio.NewReader(idle), bufio.NewReader(busy)
	if resp := exchangeOn(t, idle, bi, "/"); resp.Close {
		t.Error("closed before the drain")
	}
	fmt.Fprint(busy, "GET /slow HTTP/1.1\r\nHost: echo:8080\r\n\r\n")
	<-entered
	r.tracker.Drain()
	if _, err := bi.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v", err)
	}
	close(release)
	resp, err := http.ReadResponse(bb, nil)
	if err != nil || !resp.Close {
		t.Fatalf("%v %v", resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if _, err := bb.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the busy connection: %v", err)
	}
	if err := r.tracker.WaitQuiet(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func exchangeOn(t *testing.T, c net.Conn, br *bufio.Reader, path string) *http.Response {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: echo:8080\r\n\r\n", path)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

// Many clients do not move at one moment.
func TestDrainIsSpread(t *testing.T) {
	r := newRig(t)
	r.tracker.Spread = time.Second
	r.put(newBackend(t, "a", nil).addr)
	const n = 100
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		at []time.Duration
	)
	clients := make([]*framed, n)
	for i := range clients {
		clients[i] = r.framed()
		clients[i].get(1)
		clients[i].next()
	}
	began := time.Now()
	r.tracker.Drain()
	for _, c := range clients {
		wg.Go(func() {
			if _, ok := c.next().(*http2.GoAwayFrame); !ok {
				t.Error("no GOAWAY")
			}
			mu.Lock()
			at = append(at, time.Since(began))
			mu.Unlock()
		})
	}
	if err := r.tracker.WaitQuiet(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("every turn was over after %s", took)
	}
	wg.Wait()
	slices.Sort(at)
	if at[n-1]-at[0] < 500*time.Millisecond || at[n-1]-at[n/2] < 100*time.Millisecond {
		t.Errorf("GOAWAYs at %s, %s … %s", at[0], at[n/2], at[n-1])
	}
}

// gRPC clients that never retry lose no call when they are told to go.
func TestDrainLosesNoCall(t *testing.T) {
	r := newRig(t)
	r.tracker.Spread = 500 * time.Millisecond
	addr, _ := grpcServer(t, "127.0.0.1:0")
	r.putCluster(&discovery.Cluster{HTTP2: true}, addr)
	var (
		wg   sync.WaitGroup
		over atomic.Bool
	)
	for range 8 {
		c := r.grpcClient(echo)
		wg.Go(func() {
			for !over.Load() {
				if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	issued := func() uint64 { return r.set.Status()[0].Endpoints[0].Total.Issued }
	testwait.Until(t, "calls are made", func() bool { return issued() > 200 })
	r.tracker.Drain()
	before := issued()
	testwait.Until(t, "calls go on", func() bool { return issued() > before+100 })
	over.Store(true)
	wg.Wait()
}

// socket opens a connection that was upgraded to an echo of lines.
func (r *rig) socket() *bufio.ReadWriter {
	r.t.Helper()
	c := r.dial(r.addr)
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: echo:8080\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		r.t.Fatalf("%v %v", resp, err)
	}
	return bufio.NewReadWriter(br, bufio.NewWriter(c))
}

func lineEcho(t *testing.T) *backend {
	return newBackend(t, "lines", func(w http.ResponseWriter, q *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", q.Header.Get("Upgrade"))
		_, _ = io.Copy(c, buf)
	})
}

func say(s *bufio.ReadWriter, line string) (string, error) {
	_, _ = s.WriteString(line + "\n")
	if err := s.Flush(); err != nil {
		return "", err
	}
	return s.ReadString('\n')
}

// A change that does not concern a connection does not touch it.
func TestUnrelatedReloads(t *testing.T) {
	r := newRig(t)
	lines, other := lineEcho(t), newBackend(t, "other", nil)
	r.put(lines.addr)
	var all []*bufio.ReadWriter
	for range 20 {
		all = append(all, r.socket())
	}
	for i := range 100 {
		c := &discovery.Cluster{ClusterVersion: fmt.Sprint(i), EndpointVersion: fmt.Sprint(i)}
		c.Breakers = &[discovery.Priorities]discovery.Limits{discovery.DefaultLimits, discovery.DefaultLimits}
		c.Breakers[0].Requests = uint32(1000 + i)
		c.Retry = &discovery.Retry{On: []string{"5xx"}, Attempts: 1 + i%3}
		if i%2 == 0 {
			r.putCluster(c, lines.addr)
		} else {
			r.putCluster(c, other.addr, lines.addr)
		}
		r.putNamed(fmt.Sprintf("other-%d.default.svc.cluster.local:80", i%7), &discovery.Cluster{HTTP2: i%3 == 0}, other.addr)
		r.set.Remove(fmt.Sprintf("other-%d.default.svc.cluster.local:80", (i+3)%7))
		s := all[i%len(all)]
		if got, err := say(s, fmt.Sprint("hello ", i)); err != nil || got != fmt.Sprintf("hello %d\n", i) {
			t.Fatalf("after %d reloads: %q %v", i+1, got, err)
		}
	}
	for i, s := range all {
		if got, err := say(s, "still"); err != nil || got != "still\n" {
			t.Errorf("connection %d: %q %v", i, got, err)
		}
	}
}

// What is established on an endpoint that leaves is closed when its service's drain is over, or never.
func TestDrainDeadlineOfTheService(t *testing.T) {
	second := 300 * time.Millisecond
	for _, drain := range []*time.Duration{&second, new(time.Duration)} {
		t.Run(drain.String(), func(t *testing.T) {
			// The proxy's own time is not what counts.
			r := newRig(t, func(c *endpoints.Config) { c.Drain = 100 * time.Millisecond })
			lines := lineEcho(t)
			r.putCluster(&discovery.Cluster{Drain: drain}, lines.addr)
			socket := r.socket()
			began := time.Now()
			r.putCluster(&discovery.Cluster{Drain: drain})
			if *drain == 0 {
				for range 10 {
					if got, err := say(socket, "on"); err != nil || got != "on\n" {
						t.Fatalf("%q %v", got, err)
					}
					<-time.NewTimer(50 * time.Millisecond).C // all together longer than any deadline there is
				}
				return
			}
			if got, err := say(socket, "on"); err != nil || got != "on\n" {
				t.Errorf("before the deadline: %q %v", got, err)
			}
			if got, err := socket.ReadString('\n'); err == nil {
				t.Errorf("after the deadline: %q", got)
			}
			if took := time.Since(began); took < *drain {
				t.Errorf("closed after %s", took)
			}
			r.counted("endpoint_removed", 1)
		})
	}
}

// A gRPC stream and a TCP connection on an endpoint that leaves are told apart from a failure.
func TestRemovedEndpointCutsStreams(t *testing.T) {
	r := newRig(t, func(c *endpoints.Config) { c.Drain = 200 * time.Millisecond })
	addr := endlessServer(t)
	r.putCluster(&discovery.Cluster{HTTP2: true}, addr)
	over := r.stream(t.Context())
	tcp := r.dial(r.serveTCP(echo))
	_, _ = io.WriteString(tcp, http2.ClientPreface)
	if _, err := io.ReadFull(tcp, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	r.putCluster(&discovery.Cluster{HTTP2: true})
	err := <-over
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connection: endpoint_removed: "+addr) {
		t.Errorf("stream: %v", err)
	}
	_, _ = io.Copy(io.Discard, tcp)
	r.counted("endpoint_removed", 2)
}

// A client that names an address, and one whose endpoint left meanwhile, are told to connect anew.
func TestPinnedClientsAreLetGo(t *testing.T) {
	r := newRig(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	a := newBackend(t, "a", func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			entered <- struct{}{}
			<-release
		}
	})
	r.putNamed(a.addr, &discovery.Cluster{}, a.addr)
	r.put(a.addr)
	pinned, named := r.dial(r.addr), r.dial(r.addr)
	bp, bn := bufio.NewReader(pinned), bufio.NewReader(named)
	toAddress := func() *http.Response {
		fmt.Fprintf(pinned, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", a.addr)
		resp, err := http.ReadResponse(bp, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp
	}
	if resp := toAddress(); resp.StatusCode != 200 || resp.Close {
		t.Errorf("%v", resp)
	}
	fmt.Fprint(named, "GET /slow HTTP/1.1\r\nHost: echo:8080\r\n\r\n")
	<-entered
	r.putNamed(a.addr, &discovery.Cluster{})
	r.put(newBackend(t, "b", nil).addr)
	close(release)
	if resp, err := http.ReadResponse(bn, nil); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("answer of an endpoint that left: %v %v", resp, err)
	}
	if resp := toAddress(); resp.StatusCode != 503 || !resp.Close || !strings.Contains(resp.Header.Get("Proxy-Status"), "reason=no_endpoints") {
		t.Errorf("address that is gone: %v", resp)
	}
}

// Connections are told to go at about their greatest age, each at its own; what never ends is cut after the grace.
func TestConnectionAge(t *testing.T) {
	r := newRig(t)
	r.cfg.MaxConnectionAge, r.cfg.MaxConnectionAgeGrace = time.Second, 500*time.Millisecond
	r.again()
	r.putCluster(&discovery.Cluster{HTTP2: true}, endlessServer(t))
	began := time.Now()
	over := r.stream(t.Context())
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		at []time.Duration
	)
	for range 20 {
		c := r.framed()
		wg.Go(func() {
			if _, ok := c.next().(*http2.GoAwayFrame); !ok {
				t.Error("no GOAWAY")
			}
			mu.Lock()
			at = append(at, time.Since(began))
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(at)
	if at[0] < 900*time.Millisecond {
		t.Errorf("the first GOAWAY after %s", at[0])
	}
	if err := <-over; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "proxy: connection_age") {
		t.Errorf("a stream that never ends: %v", err)
	}
	if took := time.Since(began); took < 1400*time.Millisecond {
		t.Errorf("cut after %s", took)
	}
}
