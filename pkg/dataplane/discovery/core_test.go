package discovery

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rig drives a core by hand.
type rig struct {
	*core
	applied *applied
	now     time.Time
	nonce   int
	answers map[string]answer
}

func newRig() *rig {
	a := newApplied()
	c := newCore(limits{
		maxAge: 5 * time.Minute, idle: time.Hour, silence: 12 * time.Second, answer: 2 * time.Second,
	}, &corev3.Node{Id: "n"}, a, rand.New(rand.NewPCG(1, 2)))
	return &rig{core: c, applied: a, now: epoch, answers: map[string]answer{}}
}

// do takes the output and gives the requests as lines.
func (r *rig) do() []string {
	out := r.take()
	for _, a := range out.answers {
		r.answers[a.status.Name] = a
	}
	var lines []string
	for _, q := range out.requests {
		lines = append(lines, describe(q))
	}
	if out.reconnect != "" {
		lines = append(lines, fmt.Sprintf("reconnect next=%v", out.next))
	}
	if out.report {
		lines = append(lines, "report")
	}
	return lines
}

func describe(q *discoveryv3.DeltaDiscoveryRequest) string {
	s := mesh.Type(q.GetTypeUrl()).Short()
	if q.GetNode() != nil {
		s += " node"
	}
	for _, n := range q.GetResourceNamesSubscribe() {
		s += " +" + n
	}
	for _, n := range q.GetResourceNamesUnsubscribe() {
		s += " -" + n
	}
	for _, n := range sortedKeys(q.GetInitialResourceVersions()) {
		s += " " + n + "=" + q.GetInitialResourceVersions()[n]
	}
	switch {
	case q.GetErrorDetail() != nil:
		s += " NACK " + q.GetResponseNonce() + " " + q.GetErrorDetail().GetMessage()
	case q.GetResponseNonce() != "":
		s += " ACK " + q.GetResponseNonce()
	}
	return s
}

func (r *rig) respond(t mesh.Type, resources []*discoveryv3.Resource, removed ...string) []string {
	r.nonce++
	r.Response(r.now, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: string(t), Nonce: fmt.Sprint(r.nonce), Resources: resources, RemovedResources: removed,
	})
	return r.do()
}

// tick moves the time on in steps, and gives what came with when it came.
func (r *rig) tick(d time.Duration) []string {
	var lines []string
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(tickEvery)
		r.Tick(r.now)
		for _, l := range r.do() {
			lines = append(lines, fmt.Sprintf("%v: %s", r.now.Sub(epoch), l))
		}
	}
	return lines
}

func list(r ...*discoveryv3.Resource) []*discoveryv3.Resource { return r }

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// subscribed opens a stream on which a is in force.
func subscribed(t *testing.T) *rig {
	t.Helper()
	r := newRig()
	r.Subscribe(r.now, "a", false)
	expect(t, r.do())
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a", "eds +a")
	expect(t, r.respond(mesh.TypeCluster, list(cds("a", "1", ""))), "cds ACK 1")
	if r.applied.get("a") != nil {
		t.Error("a cluster without endpoints yet was applied")
	}
	expect(t, r.respond(mesh.TypeEndpoint, list(eds("a", "1", "10.0.0.1"))), "eds ACK 2")
	if diff := cmp.Diff([]string{"10.0.0.1"}, hostsOf(r.applied.get("a"))); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	return r
}

func TestRefusalKeepsTheOldAndTakesTheRest(t *testing.T) {
	r := subscribed(t)
	r.Subscribe(r.now, "b", false)
	expect(t, r.do(), "cds +b", "eds +b")
	r.respond(mesh.TypeCluster, list(cds("b", "1", "")))
	expect(t, r.respond(mesh.TypeEndpoint, list(eds("a", "2", "not-an-ip"), eds("b", "1", "10.0.0.2"))),
		`eds NACK 4 a: endpoints[0].lb_endpoints[0]: address "not-an-ip": not an IP address`)
	a, b := r.applied.get("a"), r.applied.get("b")
	if a.EndpointVersion != "1" || !slices.Equal(hostsOf(b), []string{"10.0.0.2"}) {
		t.Errorf("a at %s, b has %v", a.EndpointVersion, hostsOf(b))
	}
	if s := r.answers["a"]; s.cluster == nil || s.status.State != StateRefused {
		t.Errorf("a: %+v", s.status)
	}
	r.respond(mesh.TypeEndpoint, list(eds("a", "3", "10.0.0.3")))
	if s := r.answers["a"]; s.status.State != StateInForce || s.status.Reason != "" {
		t.Errorf("a after a good form: %+v", s.status)
	}
}

func TestApplierRefuses(t *testing.T) {
	r := subscribed(t)
	r.applied.refuse = func(c *Cluster) error {
		if c.ClusterVersion == "2" {
			return errors.New("too odd")
		}
		return nil
	}
	expect(t, r.respond(mesh.TypeCluster, list(cds("a", "2", ""))), "cds NACK 3 a: too odd")
	if v := r.applied.get("a").ClusterVersion; v != "1" {
		t.Errorf("version %s in force", v)
	}
	// The version held is offered on the next stream, not the refused one.
	r.Closed()
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a a=1", "eds +a a=1")
}

func TestRefusedWithNothingInForceIsToldAtOnce(t *testing.T) {
	r := newRig()
	r.Subscribe(r.now, "a", false)
	r.Opened(r.now)
	r.do()
	bad := cds("a", "1", "")
	bad.Resource.Value = []byte{0xff}
	r.respond(mesh.TypeCluster, list(bad))
	if err := r.answers["a"].err; !errors.Is(err, ErrDiscoveryPending) || !strings.Contains(err.Error(), "cds: ") {
		t.Errorf("error %v", err)
	}
}

func TestServiceNameMakesBeforeItBreaks(t *testing.T) {
	r := subscribed(t)
	expect(t, r.respond(mesh.TypeCluster, list(cds("a", "2", "s"))), "cds ACK 3", "eds +s")
	if c := r.applied.get("a"); c.ClusterVersion != "1" {
		t.Error("the new cluster is in force without its endpoints")
	}
	// Until then the old endpoints are followed.
	r.respond(mesh.TypeEndpoint, list(eds("a", "2", "10.0.0.9")))
	expect(t, r.respond(mesh.TypeEndpoint, list(eds("s", "1", "10.0.0.2"))), "eds ACK 5", "eds -a")
	c := r.applied.get("a")
	if c.ServiceName != "s" || !slices.Equal(hostsOf(c), []string{"10.0.0.2"}) {
		t.Errorf("in force: %+v", c)
	}
}

func TestSharedAssignmentIsRefusedForAll(t *testing.T) {
	r := subscribed(t)
	r.Subscribe(r.now, "b", false)
	r.respond(mesh.TypeCluster, list(cds("b", "1", "a")))
	if got := hostsOf(r.applied.get("b")); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Fatalf("b has %v", got)
	}
	r.applied.refuse = func(c *Cluster) error {
		if c.Name == "b" && c.EndpointVersion == "2" {
			return errors.New("no")
		}
		return nil
	}
	expect(t, r.respond(mesh.TypeEndpoint, list(eds("a", "2", "10.0.0.2"))), "eds NACK 4 a: no")
	for _, n := range []string{"a", "b"} {
		if c := r.applied.get(n); c.EndpointVersion != "1" {
			t.Errorf("%s is at %s", n, c.EndpointVersion)
		}
	}
}

func TestRemovalIsForgottenWithTheStream(t *testing.T) {
	r := subscribed(t)
	expect(t, r.respond(mesh.TypeEndpoint, nil, "a"), "eds ACK 3")
	if c := r.applied.get("a"); c == nil || len(c.Endpoints) != 0 {
		t.Fatalf("without an assignment: %+v", c)
	}
	expect(t, r.respond(mesh.TypeCluster, nil, "a"), "cds ACK 4")
	if c := r.applied.get("a"); c != nil {
		t.Fatalf("still there: %+v", c)
	}
	if a := r.answers["a"]; !errors.Is(a.err, ErrUnknownService) {
		t.Fatalf("answer %+v", a)
	}
	r.Closed()
	r.do()
	if a := r.answers["a"]; a.err != nil || a.cluster != nil || a.status.State != StatePending {
		t.Fatalf("after the stream: %+v", a)
	}
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a", "eds +a")
}

func TestProbeIsAcknowledged(t *testing.T) {
	r := subscribed(t)
	expect(t, r.respond(mesh.TypeCluster, nil), "cds ACK 3")
	// Of a type that was never asked for, an ACK would be a wildcard subscription.
	expect(t, r.respond(mesh.TypeListener, nil))
}

func TestLadderOfOneName(t *testing.T) {
	r := subscribed(t)
	r.Distrust(r.now, "a")
	expect(t, r.do(), "cds +a", "eds +a", "report")
	r.now = r.now.Add(100 * time.Millisecond)
	r.respond(mesh.TypeCluster, list(cds("a", "1", "")))
	// EDS is withheld while the stream lives.
	expect(t, r.tick(4*time.Second),
		"2.1s: eds -a", "2.1s: eds +a", "4.1s: reconnect next=false")
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a", "eds +a")
	r.respond(mesh.TypeCluster, list(cds("a", "1", "")))
	expect(t, r.tick(2*time.Second), "6.1s: reconnect next=true")
	if r.applied.get("a") == nil {
		t.Fatal("out of force")
	}
	// The ladder's end: asked ever more rarely, the connection is left alone.
	r.Opened(r.now)
	r.do()
	var anew int
	for range 60 {
		r.respond(mesh.TypeCluster, list(cds("a", "1", "")))
		for _, l := range r.tick(time.Second) {
			if strings.Contains(l, "reconnect") {
				t.Fatal(l)
			}
			if strings.HasSuffix(l, "eds -a") {
				anew++
			}
		}
	}
	if anew < 3 || anew > 6 {
		t.Errorf("asked %d times in a minute", anew)
	}
	r.respond(mesh.TypeEndpoint, list(eds("a", "2", "10.0.0.2")))
	if e := r.entries[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}]; e.rung != 0 || e.wait != r.answer {
		t.Errorf("an answer left rung %d, wait %v", e.rung, e.wait)
	}
}

func TestDistrustDoesNotPutOffTheWatchdog(t *testing.T) {
	r := subscribed(t)
	var lines []string
	for range 20 { // dials keep failing, four times a second
		r.Distrust(r.now, "a")
		for _, l := range r.do() {
			lines = append(lines, fmt.Sprintf("%v: %s", r.now.Sub(epoch), l))
		}
		lines = append(lines, r.tick(tickEvery)...)
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "reconnect") }); i >= 0 {
			break
		}
	}
	expect(t, lines,
		"0s: cds +a", "0s: eds +a", "0s: report",
		"1s: cds +a", "1s: eds +a", "1s: report",
		"2s: cds -a", "2s: cds +a", "2s: eds -a", "2s: eds +a", "2s: report",
		"3s: cds +a", "3s: eds +a", "3s: report",
		"4s: reconnect next=false", "4s: report")
}

func TestSilenceLadder(t *testing.T) {
	r := subscribed(t)
	r.Subscribe(r.now, "b", false)
	r.respond(mesh.TypeCluster, list(cds("b", "1", "")))
	r.now = r.now.Add(tickEvery)
	r.respond(mesh.TypeEndpoint, list(eds("b", "1", "10.0.0.1")))
	got := r.tick(16 * time.Second)
	expect(t, got,
		"12.25s: cds +a", "12.25s: eds +a", // one of each type, the oldest
		"14.25s: cds -a", "14.25s: cds +a", "14.25s: eds -a", "14.25s: eds +a",
		"16.25s: reconnect next=false")
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a +b", "eds +a +b")
	expect(t, r.tick(2*time.Second), "18.25s: reconnect next=true")
	if got := r.applied.names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("in force: %v", got)
	}
}

func TestDistrustWithoutAStreamIsRemembered(t *testing.T) {
	r := subscribed(t)
	r.Closed()
	r.Distrust(r.now, "a")
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a", "eds +a", "report")
}

func TestNewStreamHasItsOwnTimeToAnswer(t *testing.T) {
	r := subscribed(t)
	r.Distrust(r.now, "a")
	r.Closed()
	r.now = r.now.Add(10 * time.Second)
	r.Opened(r.now)
	r.do()
	expect(t, r.tick(1750*time.Millisecond))
}

func TestReset(t *testing.T) {
	r := subscribed(t)
	calls := r.applied.calls
	r.Reset(r.now, "a")
	expect(t, r.do(), "cds -a", "cds +a", "eds -a", "eds +a")
	if r.applied.get("a") == nil {
		t.Fatal("out of force before the answer")
	}
	r.respond(mesh.TypeCluster, list(cds("a", "1", "")))
	r.respond(mesh.TypeEndpoint, list(eds("a", "1", "10.0.0.1")))
	if r.applied.calls != calls+2 {
		t.Errorf("applied %d times, want both answers to count as new", r.applied.calls-calls)
	}
	r.Reset(r.now, "")
	expect(t, r.do(), "reconnect next=false")
	r.Opened(r.now)
	expect(t, r.do(), "cds node +a", "eds +a")
}

func TestIdle(t *testing.T) {
	r := subscribed(t)
	r.Subscribe(r.now, "pinned", true)
	r.Subscribe(r.now, "absent", false)
	r.respond(mesh.TypeCluster, nil, "absent", "pinned")
	r.Closed() // nothing but idleness is to be seen here
	r.do()
	r.Opened(r.now)
	r.do()
	r.respond(mesh.TypeCluster, nil, "absent", "pinned")
	r.now = r.now.Add(absentIdle)
	r.Tick(r.now)
	if got := sortedKeys(r.subs); !slices.Equal(got, []string{"a", "pinned"}) {
		t.Errorf("subscribed: %v", got)
	}
	r.Used("a", r.now)
	r.now = r.now.Add(time.Hour - time.Second)
	r.Tick(r.now)
	if r.applied.get("a") == nil {
		t.Error("a was dropped while in use")
	}
	r.now = r.now.Add(time.Second)
	r.Tick(r.now)
	r.do()
	if got := sortedKeys(r.subs); !slices.Equal(got, []string{"pinned"}) || r.applied.get("a") != nil || !r.answers["a"].dropped {
		t.Errorf("subscribed: %v", got)
	}
}

func TestHostNames(t *testing.T) {
	r := newRig()
	r.Subscribe(r.now, "d", false)
	r.Opened(r.now)
	r.do()
	r.Response(r.now, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: string(mesh.TypeCluster), Nonce: "1", Resources: list(dns("d", "1", "example.com")),
	})
	out := r.take()
	if !slices.Equal(out.resolve, []string{"example.com"}) || r.applied.get("d") != nil {
		t.Fatalf("resolve %v, applied %v", out.resolve, r.applied.names())
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}
	r.Resolved(r.now, "example.com", addrs, nil)
	if got := hostsOf(r.applied.get("d")); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) {
		t.Fatalf("endpoints %v", got)
	}
	expect(t, r.do(), "eds -d")
	r.now = r.now.Add(defaultRefreshRate)
	r.Tick(r.now)
	if out := r.take(); len(out.resolve) != 1 {
		t.Fatalf("resolve %v after the refresh time", out.resolve)
	}
	r.Resolved(r.now, "example.com", nil, errors.New("no resolver"))
	if got := hostsOf(r.applied.get("d")); len(got) != 2 {
		t.Fatalf("endpoints %v after a failed lookup", got)
	}
}

func TestRestore(t *testing.T) {
	r := subscribed(t)
	r.Subscribe(r.now, "b", false)
	r.respond(mesh.TypeCluster, list(cds("b", "1", "a")))
	saved := r.Snapshot()

	n := newRig()
	loaded, problems := n.Restore(n.now.Add(time.Hour), saved)
	if loaded != 2 || len(problems) != 0 {
		t.Fatalf("loaded %d, problems %v", loaded, problems)
	}
	b := n.applied.get("b")
	if !b.FromDisk || !b.ConfirmedAt.Equal(epoch) || !slices.Equal(hostsOf(b), []string{"10.0.0.1"}) {
		t.Errorf("restored: %+v", b)
	}
	n.now = n.now.Add(time.Hour)
	n.do()
	n.Opened(n.now)
	expect(t, n.do(), "cds node +a +b", "eds +a") // asked in full: only an answer vouches
	n.respond(mesh.TypeCluster, list(cds("b", "1", "a")), "a")
	n.respond(mesh.TypeEndpoint, list(eds("a", "1", "10.0.0.1")))
	if b = n.applied.get("b"); b.FromDisk || !b.ConfirmedAt.Equal(n.now) {
		t.Errorf("answered: %+v", b)
	}
	if n.applied.get("a") != nil {
		t.Error("a was removed by the control plane and is still in force")
	}
}

// property runs a random life of a client against a control plane that says
// anything, and checks what must hold after each step.
func property(t *rapid.T) {
	r := newRig()
	names := []string{"a", "b", "c"}
	server := map[mesh.ResourceName]bool{} // what the stream's server has been asked for
	asked := map[mesh.Type]bool{}
	r.applied.refuse = func(c *Cluster) error {
		if c.ClusterVersion == "4" && c.EndpointVersion == "4" {
			return errors.New("refused")
		}
		return nil
	}
	nonce := 0
	t.Repeat(map[string]func(*rapid.T){
		"subscribe": func(t *rapid.T) {
			r.Subscribe(r.now, rapid.SampledFrom(names).Draw(t, "name"), rapid.Bool().Draw(t, "pinned"))
		},
		"open":     func(*rapid.T) { clear(server); clear(asked); r.Opened(r.now) },
		"close":    func(*rapid.T) { r.Closed() },
		"distrust": func(t *rapid.T) { r.Distrust(r.now, rapid.SampledFrom(names).Draw(t, "name")) },
		"reset":    func(t *rapid.T) { r.Reset(r.now, rapid.SampledFrom(append(names, "")).Draw(t, "name")) },
		"resolved": func(t *rapid.T) { r.Resolved(r.now, "h", []netip.Addr{netip.MustParseAddr("10.9.9.9")}, nil) },
		"tick": func(t *rapid.T) {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 4_000_000).Draw(t, "ms")) * time.Millisecond)
			r.Tick(r.now)
		},
		"step": func(t *rapid.T) {
			for range rapid.IntRange(1, 30).Draw(t, "ticks") {
				r.now = r.now.Add(time.Second)
				r.Tick(r.now)
			}
		},
		"respond": func(t *rapid.T) {
			if !r.open {
				return
			}
			before := len(r.out.requests)
			nonce++
			response := randomResponse(t, names, nonce)
			wanted := r.asked[mesh.Type(response.GetTypeUrl())]
			r.Response(r.now, response)
			if wanted && r.out.requests[before].GetResponseNonce() != response.GetNonce() {
				t.Fatalf("response %s is not answered first", response.GetNonce())
			}
		},
		"": func(t *rapid.T) {
			out := r.take()
			for _, q := range out.requests {
				serve(t, server, asked, q)
			}
			check(t, r, server)
		},
	})
}

func randomResponse(t *rapid.T, names []string, nonce int) *discoveryv3.DeltaDiscoveryResponse {
	typ := rapid.SampledFrom([]mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint, mesh.TypeListener}).Draw(t, "type")
	response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: fmt.Sprint(nonce)}
	for range rapid.IntRange(0, 4).Draw(t, "resources") {
		name := rapid.SampledFrom(append(names, "s", "unknown")).Draw(t, "name")
		version := fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "version"))
		res := eds(name, version, "10.0.0."+version)
		if typ == mesh.TypeCluster {
			res = cds(name, version, rapid.SampledFrom([]string{"", "s", "a", "b"}).Draw(t, "service"))
		}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			res.Resource = nil
		case 1:
			res.Resource.Value = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
		case 2:
			if typ == mesh.TypeCluster {
				res = dns(name, version, rapid.SampledFrom([]string{"h", "10.1.1.1"}).Draw(t, "host"))
			}
		}
		response.Resources = append(response.Resources, res)
	}
	response.RemovedResources = rapid.SliceOfN(rapid.SampledFrom(append(names, "s", "unknown")), 0, 2).Draw(t, "removed")
	return response
}

// serve keeps a server's book, by the xDS protocol.
func serve(t *rapid.T, server map[mesh.ResourceName]bool, asked map[mesh.Type]bool, q *discoveryv3.DeltaDiscoveryRequest) {
	typ := mesh.Type(q.GetTypeUrl())
	if !asked[typ] && len(q.GetResourceNamesSubscribe())+len(q.GetResourceNamesUnsubscribe()) == 0 {
		t.Fatalf("the first request of %s subscribes by wildcard", typ.Short())
	}
	if (q.GetNode() != nil) != (len(asked) == 0) {
		t.Fatalf("node in the wrong request: %v", q)
	}
	asked[typ] = true
	for _, n := range q.GetResourceNamesUnsubscribe() {
		delete(server, mesh.ResourceName{Type: typ, Name: n})
	}
	for _, n := range q.GetResourceNamesSubscribe() {
		if n == "" || n == "*" {
			t.Fatalf("subscribes %q", n)
		}
		server[mesh.ResourceName{Type: typ, Name: n}] = true
	}
}

func check(t *rapid.T, r *rig, server map[mesh.ResourceName]bool) {
	if r.open {
		for n := range r.entries {
			if !server[n] {
				t.Fatalf("%v is wanted, but not subscribed", n)
			}
		}
		if len(server) != len(r.entries) {
			t.Fatalf("subscribed %v, wanted %v", slices.Collect(maps.Keys(server)), slices.Collect(maps.Keys(r.entries)))
		}
	}
	inForce := []string{}
	for _, n := range sortedKeys(r.subs) {
		s := r.subs[n]
		if s.inForce != nil {
			inForce = append(inForce, n)
			if a := r.applied.get(n); a == nil || a.EndpointVersion != s.inForce.EndpointVersion || a.ClusterVersion != s.inForce.ClusterVersion {
				t.Fatalf("%s: applied %+v, in force %+v", n, a, s.inForce)
			}
		}
		if len(s.services) > 3 {
			t.Fatalf("%s: assignments %v", n, s.services)
		}
	}
	if diff := cmp.Diff(inForce, append([]string{}, r.applied.names()...)); diff != "" {
		t.Fatalf("in force and applied (-want +got)\n%s", diff)
	}
	for n, e := range r.entries {
		if len(e.users) == 0 {
			t.Fatalf("%v has no user", n)
		}
		if r.open && e.askedAt.IsZero() && !e.known && e.refusal == "" {
			t.Fatalf("%v is unknown, and nothing is awaited", n)
		}
	}
}

func TestProperty(t *testing.T) { rapid.Check(t, property) }

func FuzzCore(f *testing.F) { f.Fuzz(rapid.MakeFuzz(property)) }
