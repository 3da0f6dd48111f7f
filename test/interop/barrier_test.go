package interop

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
)

var (
	drains = flag.Int("drains", 0, "drains of each part of TestBarrier, with and without settling; 0 means 3, and only with it")
	busy   = flag.Int("busy", 0, "endless loops that run beside TestBarrier")
)

const (
	// barrierLines is on how many connections, or by how many callers, calls are made at once, and barrierRate how many a second in all.
	barrierLines, barrierRate = 8, 400
	// barrierWatch is how long the calls after a drain's answer are watched.
	barrierWatch = 500 * time.Millisecond
)

// TestBarrier: the moment that the barrier has said of an endpoint that it is drained, its server shuts down
// as an application does at SIGTERM. No call that begins later may reach it; what is lost of those that were on
// their way is measured (docs/design/0010).
func TestBarrier(t *testing.T) {
	n, settles := *drains, []time.Duration{0, 250 * time.Millisecond}
	measured := n > 0 // one after the other, since they would disturb each other
	if !measured {
		t.Parallel()
		n, settles = 3, settles[1:]
	}
	for range *busy {
		interoptest.Start(t, exec.Command("sh", "-c", "while :; do :; done"))
	}
	for _, settle := range settles {
		for _, client := range []string{"Envoy", "dataplane", "grpc-go"} {
			t.Run(fmt.Sprintf("%s, settle %v", client, settle), func(t *testing.T) {
				if !measured {
					t.Parallel()
				}
				b := newBarrier(t, client, settle)
				for i := range n {
					b.drain(i % len(b.ends))
				}
				b.report()
			})
		}
	}
}

// barrier drains the endpoints of a service, again and again, under calls.
type barrier struct {
	*world
	t        *testing.T
	protocol string
	ends     []*ending
	sum      barrierSum

	mu    sync.Mutex // guards what follows
	calls []barrierCall
	// answered is when the last drain was; total and lost count calls.
	answered    time.Time
	total, lost int
}

type barrierCall struct {
	began, ended time.Time
	by           string
	err          error
}

// barrierSum is what was found in all drains. Times on their way are from the answer.
type barrierSum struct{ waits, onTheirWay []time.Duration }

func newBarrier(t *testing.T, client string, settle time.Duration) *barrier {
	t.Helper()
	b := &barrier{t: t, world: newWorld(t, func(c *controlplane.Config) { c.DrainSettle = settle }), protocol: "http"}
	if client == "grpc-go" {
		b.protocol = "grpc"
	}
	for i := range 3 {
		b.ends = append(b.ends, newEnding(t, fmt.Sprintf("end-%d", i), b.protocol == "grpc"))
	}
	b.list("")
	call := b.caller(client)
	testwait.Within(t, startTime, "answered", func() bool { _, err := call(0); return err == nil })
	b.growUp(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range barrierLines {
		wg.Go(func() { b.run(ctx, func() (string, error) { return call(i) }) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return b
}

// caller gives what makes one call on one of barrierLines connections, and gives who answered.
func (b *barrier) caller(client string) func(i int) (string, error) {
	b.t.Helper()
	var outbound string
	switch client {
	case "Envoy":
		outbound = interoptest.StartEnvoyWorkers(b.t, bootstrap.Options{NodeID: "envoy", XDSAddress: b.address}, 4).Outbound
	case "dataplane":
		outbound = interoptest.StartDataplane(b.t, b.address, nil).Outbound
	default:
		c := grpcGo(b.t, b.address)
		return func(int) (string, error) { return c.call("echo") }
	}
	posters := make([]meshtest.Client, barrierLines)
	for i := range posters {
		posters[i].Address = outbound
		b.t.Cleanup(posters[i].Close)
	}
	return func(i int) (string, error) {
		status, body, err := posters[i].Post("echo.default:8080", "hello")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return body, err
	}
}

func (b *barrier) run(ctx context.Context, call func() (string, error)) {
	tick := time.NewTicker(barrierLines * time.Second / barrierRate)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c := barrierCall{began: time.Now()}
		c.by, c.err = call()
		c.ended = time.Now()
		b.mu.Lock()
		b.note(c)
		b.mu.Unlock()
	}
}

// note is called with mu held.
func (b *barrier) note(c barrierCall) {
	b.total++
	if c.err == nil {
		b.calls = append(b.calls, c)
		return
	}
	b.lost++
	b.t.Logf("lost: began %v, ended %v after the last answer: %v", c.began.Sub(b.answered), c.ended.Sub(b.answered), c.err)
}

// list publishes all endpoints, one of them as terminating unless that is "".
func (b *barrier) list(terminating string) {
	b.t.Helper()
	var all []string
	for _, e := range b.ends {
		all = append(all, e.address)
	}
	b.pods(b.t, b.protocol, terminating, all...)
}

// drain has one endpoint drained and its server shut down at the answer, and brings it back.
func (b *barrier) drain(i int) {
	b.t.Helper()
	e, began := b.ends[i], time.Now()
	testwait.Within(b.t, startTime, "a call answered by "+e.name, func() bool {
		return slices.ContainsFunc(b.made(), func(c barrierCall) bool { return c.by == e.name && c.began.After(began) })
	})
	b.mu.Lock()
	b.calls = nil
	b.mu.Unlock()
	began = time.Now()
	b.list(e.address)
	status, body := meshtest.Ask(b.t, b.control.Admin, "/drain?timeout=60s&endpoint="+e.address)
	answered := time.Now()
	b.mu.Lock()
	b.answered = answered
	b.mu.Unlock()
	if status != http.StatusOK {
		b.t.Fatalf("drain: status %d: %s", status, body)
	}
	e.shutdown()
	watched := time.NewTimer(barrierWatch)
	defer watched.Stop()
	<-watched.C
	b.sum.waits = append(b.sum.waits, answered.Sub(began))
	b.judge(e, answered)
	e.up()
	b.list("")
}

func (b *barrier) made() []barrierCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *barrier) judge(e *ending, answered time.Time) {
	b.t.Helper()
	for _, c := range b.made() {
		switch {
		case c.by == e.name && c.began.After(answered):
			b.t.Errorf("a call that began %v after the answer was answered by what was drained", c.began.Sub(answered))
		case c.by == e.name && c.ended.After(answered):
			b.sum.onTheirWay = append(b.sum.onTheirWay, c.ended.Sub(answered))
		}
	}
}

func (b *barrier) report() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Logf("%d drains, %d calls, lost %d; on their way at the answer: %s; waits: %s",
		len(b.sum.waits), b.total, b.lost, quantiles(b.sum.onTheirWay), quantiles(b.sum.waits))
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "0"
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(all), at(50), at(99), at(100))
}

// growUp waits until the control plane is old enough to know its nodes.
func (w *world) growUp(t *testing.T) {
	t.Helper()
	meshtest.Get(t, w.control.Admin, "/drain?timeout=60s&endpoint=127.0.0.1:1")
}

// pods writes the service echo with endpoints that are ready, but for one that terminates unless that is "".
func (w *world) pods(t *testing.T, protocol, terminating string, addresses ...string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: echo}\nspec:\n  ports: [{name: web, port: 8080, appProtocol: %s}]\n", protocol)
	for i, address := range addresses {
		at, conditions := netip.MustParseAddrPort(address), "{ready: true}"
		if address == terminating {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: echo-%d, labels: {kubernetes.io/service-name: echo}}\n", i)
		fmt.Fprintf(&b, "addressType: IPv4\nports: [{name: web, port: %d}]\nendpoints: [{addresses: [%q], conditions: %s}]\n", at.Port(), at.Addr(), conditions)
	}
	w.manifest(t, "echo", b.String())
}

// ending is a server that answers its name, ends as applications do at SIGTERM, and comes back on its port.
type ending struct {
	t             *testing.T
	name, address string
	grpc          bool
	// shutdown answers what it has read, and closes every other connection.
	shutdown func()
}

func newEnding(t *testing.T, name string, isGRPC bool) *ending {
	t.Helper()
	e := &ending{t: t, name: name, address: "127.0.0.1:0", grpc: isGRPC}
	e.up()
	t.Cleanup(func() { e.shutdown() })
	return e
}

func (e *ending) up() {
	e.t.Helper()
	listener, err := testaddr.Listen(context.Background(), e.address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.address = listener.Addr().String()
	served := make(chan struct{})
	serve, stop := e.server()
	go func() { defer close(served); _ = serve(listener) }()
	e.shutdown = sync.OnceFunc(func() { stop(); <-served })
}

func (e *ending) server() (serve func(net.Listener) error, stop func()) {
	if e.grpc {
		s := grpc.NewServer()
		grpc_testing.RegisterTestServiceServer(s, echo{name: e.name})
		return s.Serve, s.GracefulStop
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // the client is the test
		_, _ = io.Copy(io.Discard, r.Body) // the client is told by what it gets
		fmt.Fprint(w, e.name)
	})}
	return s.Serve, func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			_ = s.Close() // what is lost is counted by who called
		}
	}
}
