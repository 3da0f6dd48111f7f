package interop

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// transcripts is where pkg/xds/ads replays them from; the format is explained there, in transcript_test.go.
var transcripts = filepath.Join("..", "..", "pkg", "xds", "ads", "testdata", "transcripts")

// letters are the names in a transcript: of services, and of what Envoy's listener is called.
var letters = map[string]string{interoptest.ClusterName("echo"): "A", interoptest.ClusterName("other"): "B", interoptest.ClusterName("later"): "C", "outbound": "D", "*": "*"}

// recorder writes down, for each stream of a node, what it requests and what is
// published meanwhile. A stream that comes when another one has ended goes on with
// its transcript; the second of two at a time has one of its own, NODE-2.
type recorder struct {
	mu sync.Mutex // guards all
	// lines: transcript → what it says.
	lines map[string][]string
	// last: transcript → when its last line was written.
	last map[string]time.Time
	// open are the transcripts whose stream has not ended.
	open map[string]bool
	// now: what is published, as the line that says so.
	now map[mesh.ResourceName]mesh.Resource
}

func newRecorder() *recorder {
	return &recorder{lines: map[string][]string{}, last: map[string]time.Time{}, open: map[string]bool{}, now: map[mesh.ResourceName]mesh.Resource{}}
}

// scale is that between the time here and in the replay.
const scale = 5

func (r *recorder) add(node, format string, args ...any) {
	now := time.Now()
	if gap := now.Sub(r.last[node]).Round(100 * time.Millisecond); gap >= 300*time.Millisecond && len(r.lines[node]) > 0 {
		r.lines[node] = append(r.lines[node], "pass "+(scale*gap).String())
	}
	r.last[node] = now
	r.lines[node] = append(r.lines[node], fmt.Sprintf(format, args...))
}

// publish is called before a change is.
func (r *recorder) publish(u mesh.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range u.Put {
		name := mesh.ResourceName{Type: p.Type, Name: p.Name}
		r.now[name] = p
		for node := range r.lines {
			r.put(node, p)
		}
	}
	for _, p := range u.Remove {
		delete(r.now, p.ResourceName)
		for node := range r.lines {
			r.add(node, "remove %s %s", p.Type.Short(), letter(p.Name))
		}
	}
}

// put is a line for those who see the resource. Envoy sees one more listener, which is its own.
func (r *recorder) put(node string, p mesh.Resource) {
	if p.For == mesh.ListenersAny || (p.For == mesh.ListenersSocket) == strings.HasPrefix(node, "envoy") {
		r.add(node, "put %s %s", p.Type.Short(), letter(p.Name))
	}
}

func letter(name string) string {
	if l, ok := letters[name]; ok {
		return l
	}
	return "E"
}

// opened begins a transcript, or goes on with one after a reconnect, and gives its name.
func (r *recorder) opened(id string) string {
	node := id
	for i := 2; r.open[node]; i++ {
		node = fmt.Sprintf("%s-%d", id, i)
	}
	r.open[node] = true
	if len(r.lines[node]) > 0 {
		r.add(node, "reconnect")
		return node
	}
	for _, n := range slices.SortedFunc(maps.Keys(r.now), func(a, b mesh.ResourceName) int {
		return strings.Compare(string(a.Type)+a.Name, string(b.Type)+b.Name)
	}) {
		r.put(node, r.now[n])
	}
	if strings.HasPrefix(node, "envoy") {
		r.add(node, "put lds %s", letter("outbound"))
	}
	return node
}

// begin records a stream.
func (r *recorder) begin() hooks {
	s := &recorded{r: r, answered: map[string]bool{}}
	return hooks{request: s.request, ended: s.ended}
}

type recorded struct {
	r *recorder
	// All guarded by r.mu. node is the name of the transcript; answered is by nonce.
	node     string
	over     bool
	answered map[string]bool
}

func (s *recorded) ended() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.over = true
	delete(s.r.open, s.node)
}

func (s *recorded) request(m any) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.over {
		return
	}
	switch m := m.(type) {
	case *discoveryv3.DiscoveryRequest:
		s.begin(m.GetNode())
		s.line(m.GetTypeUrl(), m.GetResponseNonce(), m.GetErrorDetail(), " names="+list(m.GetResourceNames()))
	case *discoveryv3.DeltaDiscoveryRequest:
		s.begin(m.GetNode())
		s.line(m.GetTypeUrl(), m.GetResponseNonce(), m.GetErrorDetail(), " subscribe="+list(m.GetResourceNamesSubscribe())+
			" unsubscribe="+list(m.GetResourceNamesUnsubscribe())+" initial="+list(slices.Sorted(maps.Keys(m.GetInitialResourceVersions()))))
	}
}

func (s *recorded) begin(node *corev3.Node) {
	if s.node == "" {
		s.node = s.r.opened(node.GetId())
	}
}

// line is one request: "ask" without a nonce, "again" with that of a response
// which was answered before, otherwise "ack" or "nack".
func (s *recorded) line(kind, nonce string, refused *rpcstatus.Status, rest string) {
	verb := "ack"
	switch {
	case nonce == "":
		verb = "ask"
	case s.answered[nonce]:
		verb = "again"
	case refused != nil:
		verb = "nack"
	}
	s.answered[nonce] = true
	s.r.add(s.node, "%s %s%s", verb, mesh.Type(kind).Short(), rest)
}

func list(names []string) string {
	var out []string
	for _, name := range names {
		out = append(out, letter(name))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// The transcripts that the fuzz test of pkg/xds/ads starts from are of the
// clients as they are: each still begins as it did when it was recorded.
// -record writes them.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	l := newLab(t, ack.Policy{ProbeInterval: 2 * time.Second, AckTimeout: time.Second})
	l.recorder = newRecorder()
	l.service("echo", one)
	clients := startAll(t, startADSRelay(t, l.address, l.recorder.begin).address)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", 20*time.Second)
	}
	if *record {
		l.live(t, clients, one, two)
	}
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	if *record {
		for name, lines := range l.recorder.lines {
			writeTranscript(t, name, lines)
		}
	}
	for _, c := range clients {
		lines := l.recorder.lines[c.name]
		text, err := os.ReadFile(filepath.Join(transcripts, c.name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := beginning(lines), beginning(strings.Split(string(text), "\n")); !maps.Equal(got, want) || len(got) != 4 {
			t.Errorf("%s begins with %v; recorded: %v", c.name, got, want)
		}
	}
}

func writeTranscript(t *testing.T, name string, lines []string) {
	t.Helper()
	protocol := "sotw"
	if strings.Contains(strings.Join(lines, " "), " subscribe=") {
		protocol = "delta"
	}
	text := protocol + "\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(transcripts, name+".txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// beginning gives the first request of each type.
func beginning(lines []string) map[string]string {
	first := map[string]string{}
	for _, line := range lines {
		if words := strings.SplitN(line, " ", 3); words[0] == "ask" && len(words) == 3 && first[words[1]] == "" {
			first[words[1]] = words[2]
		}
	}
	return first
}

// live takes the clients through what can happen to them.
func (l *lab) live(t *testing.T, clients []client, one, two string) {
	t.Helper()
	answered := func(service, backend string) {
		for _, c := range clients {
			wantAnswer(t, c, service, backend, 20*time.Second)
		}
	}
	fresh := func() {
		for _, c := range clients {
			l.wantState(t, c, ack.Fresh, 10*time.Second)
		}
	}
	l.service("echo", two)
	answered("echo", "two")
	l.service("other", one)
	answered("other", "one")
	fresh()
	l.publish(edit(t, l, mesh.TypeEndpoint, interoptest.ClusterName("echo"), &endpointv3.ClusterLoadAssignment{}, func(a *endpointv3.ClusterLoadAssignment) {
		e := a.GetEndpoints()[0]
		e.LbEndpoints = append(e.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: e.GetLbEndpoints()[0].GetHostIdentifier(), LoadBalancingWeight: wrapperspb.UInt32(0),
		})
	}))
	for _, c := range clients {
		l.wantState(t, c, ack.Rejected, 10*time.Second)
	}
	l.service("echo", one)
	answered("echo", "one")
	fresh()
	var gone mesh.Update
	for _, kind := range mesh.GeneratedTypes {
		gone.Remove = append(gone.Remove, mesh.Removal{ResourceName: mesh.ResourceName{Type: kind, Name: interoptest.ClusterName("other")}})
	}
	l.update(gone)
	for _, c := range clients {
		testwait.Within(t, 20*time.Second, "gone", func() bool { _, err := c.call("other"); return err != nil })
	}
	l.service("later", two)
	answered("later", "two")
	began := time.Now()
	for _, c := range clients {
		testwait.Within(t, 10*time.Second, "probed", func() bool { return probed(l.node(t, c).History, began) })
	}
	l.restart()
	answered("later", "two")
	l.service("echo", two)
	answered("echo", "two")
	fresh()
}
