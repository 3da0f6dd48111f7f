package controlplane_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/kube"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// resources gives all that a control plane serves, by type and name, as bytes.
func resources(t *testing.T, s *controlplane.Server) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	for _, kind := range mesh.GeneratedTypes {
		all, err := s.Resources(t.Context(), admin.Query{Type: kind})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			out[kind.Short()+" "+r.Name] = r.Body
			if r.Version != mesh.VersionOf(r.Body) {
				t.Errorf("%s %s: version %s is not that of its bytes", kind.Short(), r.Name, r.Version)
			}
		}
	}
	return out
}

func equal(t *testing.T, what string, a, b map[string][]byte) {
	t.Helper()
	if len(a) < 9 {
		t.Errorf("%s: only %d resources", what, len(a))
	}
	if diff := cmp.Diff(a, b, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("%s: replicas differ:\n%s", what, diff)
	}
}

// TestReplicasAgreeWhateverTheOrder: two control planes that hear of the same
// objects in other orders, one of them with detours, hold the same bytes.
func TestReplicasAgreeWhateverTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []mesh.Object
		for i := range 4 {
			name := fmt.Sprint("s", i)
			all = append(all, serviceOf(name), sliceOf(name, at{pod: name, ip: fmt.Sprint("10.0.0.", i+1)}, at{name + "-b", fmt.Sprint("10.0.1.", i+1), i%2 == 0}))
		}
		first := newObjects(all...)
		reference := startPlane(t, first)
		want := resources(t, reference.Server)
		for seed := range uint64(10) {
			random := rand.New(rand.NewPCG(seed, 0))
			source := newObjects()
			p := startPlane(t, source)
			for _, i := range random.Perm(len(all)) {
				if random.IntN(2) == 0 { // a detour: another form first
					source.put(sliceOf(fmt.Sprint("s", random.IntN(4)), at{pod: "x", ip: "10.9.9.9"}), serviceOf("gone"))
				}
				source.put(all[i])
				if random.IntN(3) == 0 {
					settle()
				}
			}
			for _, o := range all {
				source.put(o)
			}
			source.remove(key(mesh.KindService, "gone"))
			settle()
			equal(t, fmt.Sprint("seed ", seed), want, resources(t, p.Server))
		}
	})
}

// twins starts two control planes, on sources that are made by the function.
func twins(t *testing.T, source func() mesh.Source) [2]*meshtest.Control {
	t.Helper()
	var out [2]*meshtest.Control
	for i := range out {
		out[i] = meshtest.StartControl(t, source(), meshtest.Policy)
		synced(t, out[i])
	}
	return out
}

// agree waits until the digests of both are the same, and then compares all bytes.
func agree(t *testing.T, c [2]*meshtest.Control, what string) {
	t.Helper()
	testwait.Within(t, patience, "equal: "+what, func() bool {
		a, b := c[0].Audit(t).Server.Digests, c[1].Audit(t).Server.Digests
		for i := range min(len(a), len(b)) {
			if a[i].Version != b[i].Version || a[i].Resources != b[i].Resources || a[i].Type != b[i].Type {
				return false
			}
		}
		return len(a) == len(b) && len(a) == len(mesh.GeneratedTypes)
	})
	for _, kind := range mesh.GeneratedTypes {
		path := "/resources?type=" + kind.Short()
		a, b := shown(t, c[0], path), shown(t, c[1], path)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: %s differ:\n%s", what, kind.Short(), diff)
		}
	}
}

// TestReplicasOverFiles and over one API server: equal, at first and after each change.
func TestReplicasOverFiles(t *testing.T) {
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", "10.0.0.1:8080", "10.0.0.2:8080")
	manifests.Service("other", "10.0.0.3:8080")
	c := twins(t, manifests.Source)
	agree(t, c, "at first")
	manifests.Service("echo", "10.0.0.2:8080", "10.0.0.4:8080")
	manifests.Remove("other")
	testwait.Within(t, patience, "changed", func() bool { return len(shown(t, c[0], "/resources?type=eds")) == 1 })
	agree(t, c, "after changes")
}

func TestReplicasOverKubernetes(t *testing.T) {
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", "10.0.0.1:8080"), kubetest.Service("other", 8080))
	c := twins(t, func() mesh.Source {
		source, err := kube.New(kube.Config{Kubeconfig: api.Kubeconfig(), CheckInterval: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return source
	})
	agree(t, c, "at first")
	api.Put(kubetest.Slice("echo-2", "echo", "10.0.0.2:8080"))
	api.Remove(kubetest.Service("other", 8080))
	testwait.Within(t, patience, "changed", func() bool { return len(shown(t, c[0], "/resources?type=eds")) == 1 })
	agree(t, c, "after changes")
}

// TestMoveBetweenReplicas: a delta client that goes from one replica to the
// other names what it holds, and gets nothing again.
func TestMoveBetweenReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newObjects(serviceOf("echo"), sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}))
		one, two := startPlane(t, source), startPlane(t, source)
		s := one.open(t, xdstest.Delta, "n")
		held := map[mesh.Type]map[string]string{}
		for _, kind := range mesh.GeneratedTypes {
			s.Subscribe(kind, echo)
			held[kind] = map[string]string{}
			for _, r := range acked(s).Resources {
				held[kind][r.Name] = r.Version
			}
			if len(held[kind]) != 1 {
				t.Fatalf("%s: %v", kind.Short(), held[kind])
			}
		}
		s.Close()
		moved := xdstest.Open(t, two.conn, xdstest.Delta, &corev3.Node{Id: "n"})
		for _, kind := range mesh.GeneratedTypes {
			moved.Send(xdstest.Request{Type: kind, Subscribe: []string{echo}, Initial: held[kind]})
			// The first request of a type may be answered, but with nothing.
			for _, r := range moved.Arrived() {
				if len(r.Resources)+len(r.Removed) > 0 {
					t.Errorf("sent again: %v", r)
				}
				moved.Ack(r)
			}
		}
		settle()
		nodes, err := two.Audit(t.Context(), "n")
		if err != nil || len(nodes.Nodes) != 1 || nodes.Nodes[0].State != "fresh" {
			t.Errorf("audit %+v, %v", nodes.Nodes, err)
		}
		source.put(sliceOf("echo", at{pod: "b", ip: "10.0.0.2"}))
		if r := acked(moved); r.Type != mesh.TypeEndpoint || len(r.Resources) != 1 {
			t.Errorf("after a change: %v", r)
		}
	})
}

// TestDrainOverReplicas: each replica answers for its own nodes, and one that has just started for none.
func TestDrainOverReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, one := grown(t)
		s := one.open(t, xdstest.Delta, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		terminate(source)
		acked(s)
		settle()
		two := startPlane(t, source)
		want(t, "the one with the node", ask(t, one.Server, podA, time.Second), "drained")
		want(t, "the one that just started", ask(t, two.Server, podA, time.Second), "starting")
		s.Close()
		time.Sleep(drain.Grace) // bubble time
		moved := two.open(t, xdstest.Delta, "n")
		moved.Subscribe(mesh.TypeEndpoint, echo)
		r := moved.Expect()
		want(t, "moved there, not answered", ask(t, two.Server, podA, 0), "pending n")
		moved.Ack(r)
		settle()
		want(t, "moved there", ask(t, two.Server, podA, 0), "drained")
	})
}

// shown gives the names and versions of GET /resources.
func shown(t *testing.T, c *meshtest.Control, path string) map[string]mesh.Version {
	t.Helper()
	var all admin.Resources
	if err := json.Unmarshal([]byte(meshtest.Get(t, c.Admin, path)), &all); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]mesh.Version)
	for _, r := range all.Resources {
		out[r.Name+" "+string(r.Body)] = r.Version
	}
	return out
}

// TestReplicaThatDoesNotFollow: the audit of both names the resource, and which server is behind.
func TestReplicaThatDoesNotFollow(t *testing.T) {
	live, stuck := meshtest.NewManifests(t), meshtest.NewManifests(t)
	for _, m := range []*meshtest.Manifests{live, stuck} {
		m.Service("echo", "10.0.0.1:8080")
	}
	policy := meshtest.Policy
	policy.AckTimeout = time.Second
	var c [2]*meshtest.Control
	for i, m := range []*meshtest.Manifests{live, stuck} {
		c[i] = meshtest.StartControl(t, m.Source(), policy)
		synced(t, c[i])
	}
	agree(t, c, "at first")
	live.Service("echo", "10.0.0.2:8080")
	behind := c[1].Audit(t).Server.Instance + " is behind"
	testwait.Within(t, patience, "called stale", func() bool {
		var out bytes.Buffer
		code := audit.Run(t.Context(), audit.Options{Servers: []string{c[0].Admin, c[1].Admin}, AllowEmpty: true}, &out, &out)
		return code == audit.ExitNotFresh && strings.Contains(out.String(), "stale: eds "+echo) && strings.Contains(out.String(), behind)
	})
	stuck.Service("echo", "10.0.0.2:8080")
	agree(t, c, "in the end")
	var out bytes.Buffer
	if code := audit.Run(t.Context(), audit.Options{Servers: []string{c[0].Admin, c[1].Admin}, AllowEmpty: true}, &out, &out); code != audit.ExitFresh {
		t.Errorf("in the end: %d\n%s", code, out.String())
	}
}
