package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"github.com/freshmesh/freshmesh/test/faults/mitm"
)

// kind is a kind of client, as the report calls it.
type kind string

const (
	dataplane  kind = "dataplane, delta"
	envoyDelta kind = "Envoy, delta"
	envoySotW  kind = "Envoy, SotW"
	grpcGo     kind = "grpc-go, SotW"
)

// everyone are all the kinds.
var everyone = []kind{dataplane, envoyDelta, envoySotW, grpcGo}

// node is the node id of a world's client of this kind.
func (k kind) node() string { return strings.ToLower(strings.ReplaceAll(string(k), ", ", "-")) }

// client is one client with what stands between it and the control plane.
type client struct {
	kind  kind
	proxy *mitm.Proxy
	dial  func() caller
	// counted gives what the proxy counts of itself; nil where it counts nothing.
	counted func() counts
	// process gives the process that it is; admin is its admin address. Both are empty for grpc-go.
	process func() *interoptest.Process
	admin   string
	// ours is nil for others.
	ours *ours
	load *load

	mu      sync.Mutex // guards streams
	streams map[streamKey]bool
}

// counts are a proxy's own counters: requests that it sent again to another
// endpoint, and requests that met an endpoint to which no connection was to be had.
type counts struct{ retries, refused float64 }

type streamKey struct {
	conn int
	id   uint32
}

// discovery tells whether a stream carries ADS.
func discovery(s mitm.Stream) bool { return strings.Contains(s.Method, "AggregatedDiscovery") }

// startClient starts a client behind a man in the middle.
func startClient(t testing.TB, w *world, k kind) *client {
	t.Helper()
	proxy, err := mitm.Listen(w.xds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	c := &client{kind: k, proxy: proxy, streams: make(map[streamKey]bool)}
	proxy.Observe(func(m mitm.Message) {
		if discovery(m.Stream) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.streams[streamKey{m.Stream.Conn, m.Stream.ID}] = true
		}
	})
	switch k {
	case dataplane:
		c.startOurs(t, w)
	case envoyDelta, envoySotW:
		c.startEnvoy(t, w)
	case grpcGo:
		call := interoptest.GRPCGo(t, k.node(), proxy.Addr().String())
		c.dial = func() caller { return grpcCaller(call) }
	}
	return c
}

// current gives what matches the ADS streams that have been seen until now, and no later ones.
func (c *client) current() func(mitm.Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	streams := make(map[streamKey]bool)
	for key := range c.streams {
		streams[key] = true
	}
	return func(s mitm.Stream) bool { return streams[streamKey{s.Conn, s.ID}] }
}

// ours is our data plane.
type ours struct {
	command         func() *exec.Cmd
	process         *interoptest.Process
	outbound, admin string
	state           string // the state directory
}

func (c *client) startOurs(t testing.TB, w *world) {
	t.Helper()
	o := &ours{outbound: testaddr.Free(t, w.ip.String()), admin: testaddr.Free(t, w.ip.String()), state: t.TempDir()}
	health, inbound := testaddr.Free(t, w.ip.String()), testaddr.Free(t, w.ip.String())
	o.command = func() *exec.Cmd {
		return exec.Command(filepath.Join(programs, "dataplane"), "--node-id", c.kind.node(), "--namespace", "default",
			"--xds-address", c.proxy.Addr().String(), "--outbound-address", o.outbound, "--admin-address", o.admin,
			"--health-address", health, "--inbound-address", inbound, "--state-dir", o.state,
			"--probe-interval", w.probe.String(), "--log-level", "debug")
	}
	o.process = interoptest.Start(t, o.command())
	c.ours, c.admin = o, o.admin
	c.process = func() *interoptest.Process { return o.process }
	c.dial = func() caller { return &httpCaller{meshtest.Client{Address: o.outbound}} }
	c.counted = func() counts {
		var n counts
		for line := range strings.Lines(meshtest.Get(t, o.admin, "/stats/prometheus")) {
			series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			v, _ := strconv.ParseFloat(value, 64)
			if strings.HasPrefix(series, "freshmesh_retries_total{") {
				n.retries += v
			}
			if strings.Contains(series, `reason="connect_`) && !strings.HasPrefix(series, "freshmesh_endpoint_ejections_total{") {
				n.refused += v
			}
		}
		return n
	}
}

// restart kills our data plane and starts it again.
func (o *ours) restart(t testing.TB) {
	t.Helper()
	o.process.Kill()
	o.process = interoptest.Start(t, o.command())
}

func (c *client) startEnvoy(t testing.TB, w *world) {
	t.Helper()
	e := interoptest.StartEnvoy(t, bootstrap.Options{
		NodeID: c.kind.node(), XDSAddress: c.proxy.Addr().String(), SotW: c.kind == envoySotW,
	})
	c.admin = e.Admin
	c.process = func() *interoptest.Process { return e.Process }
	c.dial = func() caller { return &httpCaller{meshtest.Client{Address: e.Outbound}} }
	c.counted = func() counts {
		var n counts
		for line := range strings.Lines(meshtest.Get(t, e.Admin, "/stats?filter=^cluster.echo.*upstream_(rq_retry|cx_connect_fail)$")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			v, _ := strconv.ParseFloat(value, 64)
			if strings.HasSuffix(name, "rq_retry") {
				n.retries += v
			} else {
				n.refused += v
			}
		}
		return n
	}
}

// httpCaller sends HTTP/1.1 over a connection of its own.
type httpCaller struct{ meshtest.Client }

func (c *httpCaller) call(service string) (string, error) {
	status, body, err := c.Get(interoptest.ClusterName(service))
	switch {
	case err != nil:
		return "", err
	case status != http.StatusOK:
		return "", fmt.Errorf("status %d: %s", status, body)
	case body == "":
		return "", errors.New("an empty answer")
	}
	return body, nil
}

func (c *httpCaller) close() { c.Close() }

type grpcCaller func(service string) (string, error)

func (c grpcCaller) call(service string) (string, error) { return c(service) }

func (grpcCaller) close() {}
