package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// world is a control plane over manifests, which can be taken away and brought
// back on the same port, and its clients.
type world struct {
	// top is the whole test; what is started in a subtest and outlives it ends with it.
	top       *testing.T
	manifests *meshtest.Manifests
	control   *meshtest.Control
	clients   []client
	// address is where the control plane serves xDS, now or when it is back.
	address string
	edit    func(*controlplane.Config)
	stop    func()
}

// newWorld starts a control plane. edit may change its configuration, and may be nil.
func newWorld(t *testing.T, edit func(*controlplane.Config)) *world {
	t.Helper()
	w := &world{top: t, manifests: meshtest.NewManifests(t), address: "127.0.0.1:0", edit: edit}
	w.up(t)
	t.Cleanup(w.down)
	return w
}

// up starts the control plane.
func (w *world) up(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var edits []func(*controlplane.Config)
	if w.edit != nil {
		edits = append(edits, w.edit)
	}
	control, done := meshtest.RunControl(ctx, t, w.manifests.Source(), meshtest.Policy, w.address, edits...)
	w.control, w.address = control, control.XDS
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
		w.stop = func() {}
	}
}

// down stops the control plane, if it runs, and waits for its end.
func (w *world) down() { w.stop() }

// service writes a gRPC service.
func (w *world) service(name string, addresses ...string) {
	w.manifests.Put(meshtest.Service{Name: name, AppProtocol: "grpc", Addresses: addresses})
}

// each runs a subtest for every client.
func (w *world) each(t *testing.T, f func(*testing.T, client)) {
	t.Helper()
	for _, c := range w.clients {
		t.Run(c.name, func(t *testing.T) { f(t, c) })
	}
}

// node gives what the audit says of a client; the zero Node when it is not there.
func (w *world) node(t *testing.T, c client) ack.Node {
	t.Helper()
	for _, n := range w.control.Audit(t).Nodes {
		if string(n.ID) == c.name {
			return n
		}
	}
	return ack.Node{}
}

// wantFresh waits until the audit calls a client fresh, under its name and in all four types.
func (w *world) wantFresh(t *testing.T, c client, d time.Duration) {
	t.Helper()
	var n ack.Node
	defer func() {
		if t.Failed() {
			text, err := json.MarshalIndent(n, "", " ")
			t.Logf("the audit says: %s, %v", text, err)
		}
	}()
	testwait.Within(t, d, "fresh in the audit", func() bool {
		n = w.node(t, c)
		return n.State == ack.Fresh && hasAll(n)
	})
	if !strings.HasPrefix(n.Client, c.agent) || n.Protocol != c.protocol {
		t.Errorf("client %q, protocol %s; want %s…, %s", n.Client, n.Protocol, c.agent, c.protocol)
	}
}

// hasAll tells whether all four types are subscribed to. gRPC clients have a
// stream for each target, each with its types.
func hasAll(n ack.Node) bool {
	for _, kind := range mesh.GeneratedTypes {
		if !slices.ContainsFunc(n.Types, func(s ack.TypeState) bool { return s.Type == kind.Short() }) {
			return false
		}
	}
	return true
}

// response is one that the control plane sent, as it logged it.
type response struct {
	kind               string
	resources, removed int
	probe              bool
}

// responses gives what a control plane sent to a client, in order.
func responses(log *meshtest.Log, c client) []response {
	var out []response
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, ": response sent: node="+c.name+" ") {
			continue
		}
		facts := make(map[string]string)
		for word := range strings.FieldsSeq(line) {
			if key, value, ok := strings.Cut(word, "="); ok {
				facts[key] = value
			}
		}
		r := response{kind: facts["type"], probe: facts["probe"] == "true"}
		var err, err2 error
		r.resources, err = strconv.Atoi(facts["resources"])
		r.removed, err2 = strconv.Atoi(facts["removed"])
		if err != nil || err2 != nil {
			panic(fmt.Sprintf("the log has changed: %s", line))
		}
		out = append(out, r)
	}
	return out
}
