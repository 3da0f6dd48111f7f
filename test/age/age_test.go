package age

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/freshmesh/freshmesh/internal/bubble"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	age  = flag.Duration("age", time.Hour, "how long the mesh lives, in bubble time")
	seed = flag.Uint64("seed", 0, "of the changes; 0 picks one")
)

const (
	services = 850
	missing  = 850 // names that are subscribed, and come and go
	// changeEvery is the mean time between two changes, cutEvery that between two
	// broken connections, restartEvery that between two restarts of the control plane.
	changeEvery  = 3 * time.Second
	cutEvery     = 10 * time.Minute
	restartEvery = 6 * time.Hour
	samples      = 12
)

// life is one mesh in its bubble.
type life struct {
	t       *testing.T
	random  *rand.Rand
	source  *bubble.Source
	control *bubble.Control
	client  *discovery.Client
	set     *endpoints.Set
	links   links
	// truth: service → its endpoints; nil where it does not exist.
	truth   map[string][]netip.AddrPort
	changes int
	used    []usage
}

// usage is what both sides take at one moment.
type usage struct {
	at         time.Duration
	heap       uint64
	goroutines int
}

// TestAge: see the package's comment.
func TestAge(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-age %v -seed %d", *age, *seed)
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t)
		l.live(*age)
		l.rest()
		l.flat()
		l.end()
		t.Logf("%d changes in %v; heap and goroutines: %v", l.changes, *age, l.used)
	})
	t.Logf("took %v", time.Since(begin))
}

func newLife(t *testing.T) *life {
	l := &life{
		t: t, random: rand.New(rand.NewPCG(*seed, 1)), source: bubble.NewSource(), truth: map[string][]netip.AddrPort{},
	}
	for i := range services {
		l.put(name(i))
	}
	l.control = bubble.Start(t, l.source)
	l.set = endpoints.New(endpoints.Config{Reporter: silent{}})
	var err error
	l.client, err = discovery.New(discovery.Config{
		NodeID: "old", Servers: []string{"control"}, Applier: l.set, Namespace: "default",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(l.dial)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services + missing {
		l.client.Subscribe(cluster(name(i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("discovery: %v", err)
		}
		l.set.Close()
	})
	return l
}

// silent is the reporter of a mesh without traffic.
type silent struct{}

func (silent) Count(string, mesh.EndpointKey, discovery.Load) {}
func (silent) Distrust(string)                                {}

// links are the data plane's connections, so that they can be cut.
type links struct {
	mu  sync.Mutex // guards all
	all []net.Conn
}

func (l *life) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := l.control.DialContext(ctx, address)
	if err == nil {
		l.links.mu.Lock()
		l.links.all = append(l.links.all, conn)
		l.links.mu.Unlock()
	}
	return conn, err
}

func (l *life) cut() {
	l.links.mu.Lock()
	defer l.links.mu.Unlock()
	for _, conn := range l.links.all {
		_ = conn.Close()
	}
	l.links.all = nil
}

func name(i int) string             { return fmt.Sprintf("s%04d", i) }
func cluster(service string) string { return service + ".default.svc.cluster.local:8080" }

// put makes a service exist with a few endpoints of random addresses.
func (l *life) put(service string) {
	addresses := make([]netip.AddrPort, 1+l.random.IntN(4))
	for i := range addresses {
		ip := netip.AddrFrom4([4]byte{10, byte(l.random.IntN(256)), byte(l.random.IntN(256)), byte(i + 1)})
		addresses[i] = netip.AddrPortFrom(ip, 9000)
	}
	if l.truth[service] == nil {
		l.source.Put(&mesh.Service{
			Meta:  mesh.Meta{Key: key(mesh.KindService, service)},
			Ports: []mesh.ServicePort{{Name: "http", Port: 8080, Protocol: "TCP", AppProtocol: "http"}},
		})
	}
	l.truth[service] = addresses
	slice := &mesh.EndpointSlice{
		Meta:    mesh.Meta{Key: key(mesh.KindEndpointSlice, service)},
		Service: service, AddressType: "IPv4", Ports: []mesh.SlicePort{{Name: "http", Port: 9000, Protocol: "TCP"}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{a.Addr()}})
	}
	l.source.Put(slice)
}

func key(kind mesh.Kind, name string) mesh.Key {
	return mesh.Key{Kind: kind, Namespace: "default", Name: name}
}

func (l *life) remove(service string) {
	delete(l.truth, service)
	l.source.Delete(key(mesh.KindService, service))
	l.source.Delete(key(mesh.KindEndpointSlice, service))
}

// change changes one service: nine times of ten its endpoints, else whether it exists.
func (l *life) change() {
	l.changes++
	service := name(l.random.IntN(services))
	if l.random.IntN(10) == 0 {
		service = name(services + l.random.IntN(missing))
		if l.truth[service] != nil {
			l.remove(service)
			return
		}
	}
	l.put(service)
}

// live lets time pass, and looks at the memory on the way.
func (l *life) live(d time.Duration) {
	begin := time.Now()
	sample, cut, restart := begin, begin.Add(l.about(cutEvery)), begin.Add(l.about(restartEvery))
	for time.Since(begin) < d {
		time.Sleep(l.about(changeEvery)) // bubble time
		l.change()
		now := time.Now()
		switch {
		case now.After(cut):
			l.cut()
			cut = now.Add(l.about(cutEvery))
		case now.After(restart):
			l.control.Stop()
			l.control.Start()
			restart = now.Add(l.about(restartEvery))
		case !now.Before(sample):
			synctest.Wait()
			l.measure(now.Sub(begin))
			sample = sample.Add(d / samples)
		}
	}
	l.measure(time.Since(begin))
}

// about gives a time around d, evenly from half of it to one and a half.
func (l *life) about(d time.Duration) time.Duration {
	return d/2 + time.Duration(l.random.Int64N(int64(d)))
}

func (l *life) measure(at time.Duration) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.used = append(l.used, usage{at, m.HeapAlloc, runtime.NumGoroutine()})
}

// String gives "2h0m0s 31.2 MB 54".
func (u usage) String() string {
	return fmt.Sprintf("%v %.1f MB %d", u.at.Round(time.Minute), float64(u.heap)/1e6, u.goroutines)
}

// rest: within 20 s of the last change every state is right.
func (l *life) rest() {
	l.t.Helper()
	time.Sleep(20 * time.Second) // bubble time
	synctest.Wait()
	audit, err := l.control.Server.Audit(context.Background(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	if audit.Summary.Nodes != 1 || audit.Summary.Fresh != 1 {
		l.t.Errorf("audit: %+v, %+v", audit.Summary, audit.Nodes)
	}
	for _, typ := range audit.Nodes[0].Types {
		if typ.Behind != 0 || typ.HeldVersion != typ.CurrentVersion || typ.Subscribed != services+missing {
			l.t.Errorf("audit: %+v", typ)
		}
	}
	for i := range services + missing {
		service := name(i)
		c := l.set.Cluster(cluster(service))
		want, exists := l.truth[service]
		switch {
		case exists != (c != nil):
			l.t.Errorf("%s: exists %v, in effect %v", service, exists, c != nil)
		case exists && !slices.Equal(addressesOf(c.Config().Endpoints), sorted(want)):
			l.t.Errorf("%s: %v in effect, want %v", service, addressesOf(c.Config().Endpoints), want)
		}
	}
	if got := len(l.client.Status().Clusters); got != services+missing {
		l.t.Errorf("%d clusters are known to discovery, want %d", got, services+missing)
	}
	if got := len(l.set.Status()); got != len(l.truth) {
		l.t.Errorf("%d clusters are in effect, want %d", got, len(l.truth))
	}
}

func addressesOf(all []mesh.Endpoint) []netip.AddrPort {
	out := make([]netip.AddrPort, len(all))
	for i, e := range all {
		out[i] = e.Address
	}
	return sorted(out)
}

func sorted(all []netip.AddrPort) []netip.AddrPort {
	return slices.SortedFunc(slices.Values(all), netip.AddrPort.Compare)
}

// flat: the last third takes no more than the second one, but for noise. The
// first is not judged: the store's log of changes fills up to its limit.
func (l *life) flat() {
	l.t.Helper()
	third := len(l.used) / 3
	second, last := worst(l.used[third:2*third]), worst(l.used[2*third:])
	if last.heap > second.heap+second.heap/4 {
		l.t.Errorf("the heap grows from %d to %d bytes", second.heap, last.heap)
	}
	if last.goroutines > second.goroutines+10 {
		l.t.Errorf("goroutines grow from %d to %d", second.goroutines, last.goroutines)
	}
}

func worst(all []usage) usage {
	var out usage
	for _, u := range all {
		out.heap, out.goroutines = max(out.heap, u.heap), max(out.goroutines, u.goroutines)
	}
	return out
}

// end takes back what only the test holds, so that what is left is a leak.
func (l *life) end() { l.cut() }
