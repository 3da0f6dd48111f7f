package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// world is the mesh of a run.
type world struct {
	facts
	t         *testing.T
	proxy     *meshtest.Proxy
	manifests *meshtest.Manifests
	xds       string
	control   *meshtest.Control
	stop      func()
	peers     map[string][]*peer
	log       *accessLog
	// ids and ports are counters: of requests, and of the ports of TCP clients.
	ids, ports atomic.Int64
}

func cluster(service string) string { return service + ".default.svc.cluster.local:8080" }

// plan of services: how many peers, and the annotations that the judge's numbers repeat.
var plans = []struct {
	service
	peers       int
	appProtocol string
	annotations map[string]string
}{
	{
		service: service{name: "web", protocol: http1, timeout: 2 * time.Second}, peers: 4, appProtocol: "http",
		annotations: map[string]string{"connect-timeout": connecting.String(), "timeout": "2s", "drain": "1s", "outlier": "base-ejection-time=1s"},
	},
	{
		service: service{name: "rpc", protocol: http2c, perTry: time.Second}, peers: 4, appProtocol: "grpc",
		annotations: map[string]string{"connect-timeout": connecting.String(), "drain": "1s", "retry": "on=unavailable|refused-stream, attempts=2, per-try-timeout=1s"},
	},
	{
		service: service{name: "raw", protocol: opaque}, peers: 3, appProtocol: "tcp",
		annotations: map[string]string{"connect-timeout": connecting.String(), "drain": "1s"},
	},
	{
		service: service{name: "tight", protocol: http2c, timeout: 1500 * time.Millisecond, maxConnections: 2, maxRequests: 6, maxPending: 2}, peers: 2, appProtocol: "grpc",
		annotations: map[string]string{
			"connect-timeout": connecting.String(), "timeout": "1500ms", "drain": "1s", "retry": "off",
			"max-connections": "2", "max-requests": "6", "max-pending": "2",
		},
	},
	{
		service: service{name: "abused", protocol: http1}, peers: 1, appProtocol: "http",
		annotations: map[string]string{"connect-timeout": connecting.String(), "drain": "1s"},
	},
	{
		service: service{name: "abused-too", protocol: http2c}, peers: 1, appProtocol: "grpc",
		annotations: map[string]string{"connect-timeout": connecting.String(), "drain": "1s"},
	},
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, manifests: meshtest.NewManifests(t), peers: map[string][]*peer{}, facts: facts{
		ledger: newLedger(), services: map[string]*service{}, history: &history{versions: map[string][]*version{}}, requests: &requests{},
	}}
	host := 0
	for i := range plans {
		s := plans[i].service
		for range plans[i].peers {
			host++
			p := startPeer(t, w.ledger, s.protocol, fmt.Sprintf("127.77.1.%d", host))
			w.peers[s.name] = append(w.peers[s.name], p)
			s.peers = append(s.peers, p.address)
		}
		w.services[s.name] = &s
		w.put(s.name, s.peers)()
	}
	w.xds = "127.77.0.1:0"
	w.startControl()
	t.Cleanup(func() { w.stop() })
	w.log = newAccessLog(t)
	w.proxy = meshtest.StartProxy(t, w.xds, func(c *dataplane.Config) {
		c.FailFast, c.DiscoveryTimeout, c.AccessLog = time.Second, time.Second, w.log.path
		c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: cluster("raw")}}
		c.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: panics{t}})
	})
	return w
}

// panics is the proxy's log: what net/http recovered from is an error.
type panics struct{ t *testing.T }

func (p panics) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("panic")) {
		p.t.Errorf("data plane: %s", b)
	}
	return len(b), nil
}

// put publishes a service with some of its endpoints.
func (w *world) put(name string, addresses []string) (inForce func()) {
	for i := range plans {
		if p := &plans[i]; p.name == name {
			inForce = w.history.publish(name, true, addresses...)
			w.manifests.Put(meshtest.Service{Name: name, AppProtocol: p.appProtocol, Annotations: p.annotations, Addresses: addresses})
		}
	}
	return inForce
}

// startControl starts a control plane, on the address of the one before.
func (w *world) startControl() {
	ctx, cancel := context.WithCancel(context.Background())
	control, done := meshtest.RunControl(ctx, w.t, w.manifests.Source(), meshtest.Policy, w.xds, func(c *controlplane.Config) { c.Logger = hclog.NewNullLogger() })
	w.control, w.xds = control, control.XDS
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("control plane: %v", err)
		}
	}
}

// restartControl leaves the proxy without a control plane for a while.
func (w *world) restartControl(over <-chan struct{}, down time.Duration) {
	back := w.begin(controlPlane, refusing)
	w.stop()
	wait(over, down)
	w.startControl()
	w.until(30*time.Second, "the control plane hears of the proxy again", func() bool {
		a := w.control.Audit(w.t)
		return len(a.Nodes) == 1 && a.Nodes[0].State == ack.Fresh
	})
	back()
}

// until is meshtest.Until for goroutines that are not the test's own.
func (w *world) until(d time.Duration, what string, holds func() bool) {
	for end := time.Now().Add(d); !holds(); wait(nil, 20*time.Millisecond) {
		if time.Now().After(end) {
			w.t.Errorf("not within %s: %s", d, what)
			return
		}
	}
}

// change publishes some addresses of a service, or its removal, and waits until the proxy has them.
func (w *world) change(name string, exists bool, addresses []string) {
	var inForce func()
	if exists {
		inForce = w.put(name, addresses)
	} else {
		inForce = w.history.publish(name, false)
		w.manifests.Remove(name)
	}
	w.until(30*time.Second, fmt.Sprintf("the proxy has %v of %s", addresses, name), func() bool {
		held, found := w.held(name)
		if exists && !found {
			w.touch(name)
		}
		return found == exists && slices.Equal(held, slices.Sorted(slices.Values(addresses)))
	})
	inForce()
}

// touch sends a request, so that the proxy asks for the service.
func (w *world) touch(name string) {
	c := &client{world: w, kind: plain, service: name}
	if w.services[name].protocol == opaque {
		c.kind = tcp
	}
	w.requests.add(c.send(context.Background()))
	c.close()
}

// held is what the proxy has of a service.
func (w *world) held(name string) (addresses []string, found bool) {
	var all struct {
		ClusterStatuses []struct {
			Name         string `json:"name"`
			HostStatuses []struct {
				Address struct {
					SocketAddress struct {
						Address   string `json:"address"`
						PortValue uint16 `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal([]byte(meshtest.Get(w.t, w.proxy.Admin, "/clusters?format=json")), &all); err != nil {
		w.t.Errorf("/clusters: %v", err)
		return nil, false
	}
	for _, c := range all.ClusterStatuses {
		if c.Name != cluster(name) {
			continue
		}
		for _, h := range c.HostStatuses {
			a := h.Address.SocketAddress
			addresses = append(addresses, netip.AddrPortFrom(netip.MustParseAddr(a.Address), a.PortValue).String())
		}
		slices.Sort(addresses)
		return addresses, true
	}
	return nil, false
}

// accessLog reads the proxy's access log from a named pipe.
type accessLog struct {
	path string
	mu   sync.Mutex // guards lines
	// lines: key → lines in their order.
	lines map[string][]*logged
}

func newAccessLog(t *testing.T) *accessLog {
	l := &accessLog{path: filepath.Join(t.TempDir(), "access"), lines: map[string][]*logged{}}
	if err := syscall.Mkfifo(l.path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.read() }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("access log: %v", err)
		}
	})
	return l
}

// read reads until the proxy closes the log.
func (l *accessLog) read() error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for lines := json.NewDecoder(bufio.NewReader(f)); ; {
		e := &logged{}
		if err := lines.Decode(e); err == io.EOF { //nolint:errorlint // as documented
			return nil
		} else if err != nil {
			return err
		}
		if strings.HasPrefix(e.Client, abusers.String()+":") {
			continue
		}
		key := e.Client
		if e.Path != "" {
			key, _ = requestOf(e.Path)
		}
		l.mu.Lock()
		l.lines[key] = append(l.lines[key], e)
		l.mu.Unlock()
	}
}

// take takes the first line of a key; nil for none.
func (l *accessLog) take(key string) *logged {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.lines[key]
	if len(all) == 0 {
		return nil
	}
	if l.lines[key] = all[1:]; len(all) == 1 {
		delete(l.lines, key)
	}
	return all[0]
}

// each gives the lines that nobody has taken, in any order.
func (l *accessLog) each(f func(*logged)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lines := range l.lines {
		for _, line := range lines {
			f(line)
		}
	}
}

// rest gives the lines that nobody took, and forgets them.
func (l *accessLog) rest() (all []*logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lines := range l.lines {
		all = append(all, lines...)
	}
	l.lines = map[string][]*logged{}
	return all
}

// holdings are what the process holds.
type holdings struct {
	goroutines, descriptors int
	heap                    uint64
}

func closed(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// disturb gives one peer after another a fault and takes it away, until it is over.
func (w *world) disturb(over <-chan struct{}, r *rand.Rand, name string) {
	for !closed(over) {
		peers := w.peers[name]
		hit := []*peer{peers[r.IntN(len(peers))]}
		if r.IntN(5) == 0 {
			hit = peers
		}
		all := faults[peers[0].protocol]
		fault := all[r.IntN(len(all))]
		for _, p := range hit {
			p.give(fault)
		}
		wait(over, time.Duration(500+r.IntN(2000))*time.Millisecond)
		for _, p := range hit {
			p.heal()
		}
		wait(over, time.Duration(r.IntN(1500))*time.Millisecond)
	}
}

// churn changes the endpoints of services, and whether there are such services, until it is over.
func (w *world) churn(over <-chan struct{}, r *rand.Rand) {
	names := []string{"web", "rpc", "raw", "tight"}
	for !closed(over) {
		name := names[r.IntN(len(names))]
		all := w.services[name].peers
		switch r.IntN(8) {
		case 0:
			w.change(name, false, nil)
			wait(over, time.Second)
			w.change(name, true, all)
		case 1:
			w.change(name, true, nil)
			wait(over, 2*time.Second)
		default:
			w.change(name, true, all[r.IntN(len(all)):])
			wait(over, 500*time.Millisecond)
		}
		if r.IntN(2) == 0 {
			w.change(name, true, all)
		}
		wait(over, time.Duration(r.IntN(1500))*time.Millisecond)
	}
}

// restarts restarts the control plane now and then, until it is over.
func (w *world) restarts(over <-chan struct{}, r *rand.Rand) {
	for {
		wait(over, time.Duration(2+r.IntN(8))*time.Second)
		if closed(over) {
			return
		}
		w.restartControl(over, time.Duration(r.IntN(3000))*time.Millisecond)
	}
}

// watch notes when a timer comes so late that time limits say nothing, until it is over.
func (w *world) watch(over <-chan struct{}) {
	const every, tolerated = 20 * time.Millisecond, 150 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-tick.C:
		case <-over:
			return
		}
		if now := time.Now(); now.Sub(last) > tolerated {
			w.add(machine, stalled, &span{last, now})
		}
	}
}

// sockets is how many connections peers have.
func (w *world) sockets() (n int) {
	for _, peers := range w.peers {
		for _, p := range peers {
			n += p.connections()
		}
	}
	return n
}
