package kube

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestFollowsFakeClient(t *testing.T) {
	first := kubetest.Service("a", 80)
	first.UID = "uid-a"
	client := fake.NewClientset(first, kubetest.Node("n"))
	r := run(t, NewForClient(client, "fake", Config{}))
	r.holds("Node n", "Service default/a :80")
	r.is(true, true, "")

	services := client.CoreV1().Services("default")
	changed := first.DeepCopy()
	changed.Spec.Ports[0].Port = 81
	_, err := services.Update(t.Context(), changed, metav1.UpdateOptions{})
	must(t, err)
	r.holds("Node n", "Service default/a :81")
	_, err = client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), kubetest.Slice("a-1", "a", "10.0.0.1"), metav1.CreateOptions{})
	must(t, err)
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Service default/a :81")
	must(t, services.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n")
}

func TestFollowsServer(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		name := map[bool]string{false: "list", true: "streamed list"}[streaming]
		t.Run(name, func(t *testing.T) {
			a := kubetest.NewServer(t)
			a.Set(func(f *kubetest.Faults) { f.Streaming = streaming })
			pod := &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			}
			one := kubetest.Service("a", 80)
			a.Put(one, kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Node("n"), pod)
			r := run(t, newSource(t, "http://"+a.Address))
			r.is(true, true, "")
			r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Pod default/p", "Service default/a :80")
			if got := r.sink.entries(); got[len(got)-1] != "synced" {
				t.Errorf("sink heard %q, want every object before synced", got)
			}

			a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
			a.Remove(one)
			r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Pod default/p")
			if want := "delete Service default/a uid=uid-101 version=106"; !slices.Contains(r.sink.entries(), want) {
				t.Errorf("sink heard %q, want %q", r.sink.entries(), want)
			}
		})
	}
}

// What is wrong with an object is a Problem for as long as it is there.
func TestObjectProblems(t *testing.T) {
	a := kubetest.NewServer(t)
	bad := kubetest.Slice("a-1", "a", "no address")
	a.Put(bad)
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(true, true, "")
	problem := func() bool {
		p := r.source.Status().Problems
		return len(p) == 1 && p[0].Object == "EndpointSlice default/a-1"
	}
	r.until("problem", problem)
	a.Remove(bad)
	r.until("problem gone", func() bool { return len(r.source.Status().Problems) == 0 })
}

func TestDownUpDownUp(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	a.Stop()
	r := run(t, newSource(t, "http://"+a.Address))
	down := r.is(false, false, "connection refused to "+a.Address)
	if !down.LastSeenAt.IsZero() {
		t.Errorf("seen at %v, want never", down.LastSeenAt)
	}
	if len(r.sink.entries()) != 0 {
		t.Errorf("sink heard %q before the server was up", r.sink.entries())
	}

	a.Start()
	before := time.Now()
	up := r.is(true, true, "")
	if took := time.Since(before); took > 6*time.Second {
		t.Errorf("synced %v after the server came up, want a few seconds at most", took)
	}
	if !up.Since.After(down.Since) || up.LastSeenAt.Before(before) {
		t.Errorf("status %+v, want since and last seen after %v", up, before)
	}
	r.holds("Service default/a :80")

	a.Stop()
	r.is(true, false, "connection refused to "+a.Address)
	r.holds("Service default/a :80")

	a.Put(kubetest.Service("a", 81))
	a.Start()
	r.is(true, true, "")
	r.holds("Service default/a :81")

	a.Stop()
	r.is(true, false, "connection refused")
	before = time.Now()
	r.stop()
	if took := time.Since(before); took > time.Second {
		t.Errorf("Run returned %v after its context ended", took)
	}
}

// What was deleted while the watch was away is found by the next listing.
func TestExpiredWatch(t *testing.T) {
	a := kubetest.NewServer(t)
	one, two := kubetest.Service("a", 80), kubetest.Service("b", 80)
	a.Put(one, two)
	r := run(t, newSource(t, "http://"+a.Address))
	r.holds("Service default/a :80", "Service default/b :80")
	r.is(true, true, "")

	a.Set(func(f *kubetest.Faults) { f.Deaf["services"] = true })
	a.Remove(one)
	a.Put(kubetest.Service("c", 80))
	a.Set(func(f *kubetest.Faults) { f.Deaf["services"] = false; f.Expire() })
	r.holds("Service default/b :80", "Service default/c :80")
	if want := "delete Service default/a uid=uid-101 version="; !slices.Contains(r.sink.entries(), want) {
		t.Errorf("sink heard %q, want %q", r.sink.entries(), want)
	}
	r.is(true, true, "")
}

// A watch that the server closes is taken up where it ended, and is no outage.
// The check interval is the default, so that its grace is longer than the
// Reflector's pause after watches that ended at once.
func TestWatchClosed(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	r := run(t, newSourceEvery(t, "http://"+a.Address, 30*time.Second))
	before := r.is(true, true, "")
	for port := int32(81); port < 84; port++ {
		a.Set((*kubetest.Faults).EndWatches)
		a.Put(kubetest.Service("a", port))
		r.until("new port", func() bool { return strings.HasSuffix(r.sink.view(), string(rune('0'+port-80))) })
	}
	if after := r.is(true, true, ""); after.Since != before.Since {
		t.Errorf("since %v, want %v: a closed watch is no outage", after.Since, before.Since)
	}
}

// A watch that delivers nothing while everything else works is given up.
func TestDeafWatch(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(true, true, "")
	a.Set(func(f *kubetest.Faults) { f.Deaf["services"] = true })
	a.Put(kubetest.Service("a", 81))
	r.holds("Service default/a :81")
}

func TestForbiddenNodes(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Set(func(f *kubetest.Faults) { f.Status["nodes"] = 403 })
	a.Put(kubetest.Service("a", 80), kubetest.Node("n"))
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(true, true, "")
	r.holds("Service default/a :80")
	want := mesh.Problem{Object: "Node *", Reason: "forbidden: cannot list nodes: nodes are not for you"}
	r.until("problem", func() bool { return slices.Equal(r.source.Status().Problems, []mesh.Problem{want}) })

	a.Set(func(f *kubetest.Faults) { delete(f.Status, "nodes") })
	r.holds("Node n", "Service default/a :80")
	r.until("no problem", func() bool { return len(r.source.Status().Problems) == 0 })
}

func TestForbiddenServices(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Set(func(f *kubetest.Faults) { f.Status["services"] = 403 })
	a.Put(kubetest.Service("a", 80))
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(false, false, "forbidden: cannot list services: services are not for you")
	a.Set(func(f *kubetest.Faults) { delete(f.Status, "services") })
	r.is(true, true, "")
	r.holds("Service default/a :80")
}

// A server that has just started refuses everything for a moment. What it then
// has is waited for.
func TestForbiddenAtFirst(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80), kubetest.Node("n"))
	for _, r := range resources {
		a.Set(func(f *kubetest.Faults) { f.Status[r.plural] = 403 })
	}
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(false, false, "forbidden: cannot list services")
	r.until("refusal of nodes", func() bool {
		return slices.ContainsFunc(r.source.Status().Problems, func(p mesh.Problem) bool { return p.Object == "Node *" })
	})
	a.Set(func(f *kubetest.Faults) { clear(f.Status) })
	r.is(true, true, "")
	if got := r.sink.entries(); len(got) != 3 || got[2] != "synced" {
		t.Errorf("sink heard %q, want the service and the node before synced", got)
	}
}

// Nor does a refusal count that was under way when the first kind was answered.
func TestLateRefusal(t *testing.T) {
	h := newHealth("server", hclog.NewNullLogger(), time.Now())
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	began := time.Now()
	for _, r := range resources {
		h.requestFailed(r.kind, forbidden, false, began)
		h.requestFailed(r.kind, forbidden, true, began)
	}
	for _, r := range resources {
		if r.required {
			h.answered(r.kind)
			h.delivered(r.kind)
		}
	}
	if h.requestFailed(mesh.KindNode, forbidden, false, began); h.Status().Synced {
		t.Error("synced without the nodes")
	}
	if h.requestFailed(mesh.KindNode, forbidden, false, time.Now()); !h.kinds[mesh.KindNode].refused {
		t.Error("a refusal of now does not count")
	}
}

// A failure that is no refusal is waited for, in whatever kind.
func TestFailingPods(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Set(func(f *kubetest.Faults) { f.Status["pods"] = 500 })
	r := run(t, newSource(t, "http://"+a.Address))
	r.until("reason", func() bool { return strings.Contains(r.source.Status().Reason, "pods") })
	if r.source.Status().Synced {
		t.Error("synced without pods")
	}
	a.Set(func(f *kubetest.Faults) { delete(f.Status, "pods") })
	r.is(true, true, "")
}

func TestUnauthorized(t *testing.T) {
	a := kubetest.NewServer(t)
	for _, r := range resources {
		a.Set(func(f *kubetest.Faults) { f.Status[r.plural] = 401 })
	}
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(false, false, "unauthorized: "+a.Address+" does not accept the credentials")
}

func TestUnknownCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	r := run(t, newSource(t, server.URL))
	r.is(false, false, "certificate of "+server.Listener.Addr().String()+": x509:")
}

func TestSlowList(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Set(func(f *kubetest.Faults) { f.Slow["endpointslices"] = true })
	a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"))
	r := run(t, newSource(t, "http://"+a.Address))
	r.is(false, true, "waiting for the first list of endpointslices")
	a.Set(func(f *kubetest.Faults) { delete(f.Slow, "endpointslices") })
	r.is(true, true, "")
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Service default/a :80")
}

func TestRead(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Slice("a-2", "a", "10.0.0.2"), kubetest.Slice("b-1", "b", "10.0.0.3"))
	s := newSource(t, "http://"+a.Address)
	defer s.dropConnections()
	read := func(name string) (lines []string, err error) {
		objects, err := s.Read(t.Context(), mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: name})
		for _, o := range objects {
			lines = append(lines, show(o))
		}
		slices.Sort(lines)
		return lines, err
	}
	got, err := read("a")
	must(t, err)
	if want := []string{"EndpointSlice default/a-1 [10.0.0.1]", "EndpointSlice default/a-2 [10.0.0.2]", "Service default/a :80"}; !slices.Equal(got, want) {
		t.Errorf("Read gave %q, want %q", got, want)
	}
	if got, err = read("b"); err != nil || !slices.Equal(got, []string{"EndpointSlice default/b-1 [10.0.0.3]"}) {
		t.Errorf("Read of slices without a service gave %q, %v", got, err)
	}
	if got, err = read("none"); err != nil || len(got) != 0 {
		t.Errorf("Read of nothing gave %q, %v", got, err)
	}

	a.Set(func(f *kubetest.Faults) { f.Status["endpointslices"] = 403 })
	if _, err = read("a"); err == nil || !strings.Contains(err.Error(), "read Service default/a: forbidden: cannot list endpointslices") {
		t.Errorf("forbidden Read: %v", err)
	}
	a.Set(func(f *kubetest.Faults) { delete(f.Status, "endpointslices"); f.Slow["endpointslices"] = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Read(ctx, mesh.Key{Namespace: "default", Name: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read of a slow server: %v, want the deadline", err)
	}
	a.Stop()
	if _, err = read("a"); err == nil || !strings.Contains(err.Error(), "connection refused to "+a.Address) {
		t.Errorf("Read of a dead server: %v", err)
	}
}

func TestNewErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"not in a cluster", Config{}, "no kubeconfig given, and not running in a cluster"},
		{"no file", Config{Kubeconfig: filepath.Join(dir, "none")}, "none: no such file or directory"},
		{"no kubeconfig", Config{Kubeconfig: file("garbage", "{")}, "kubeconfig " + dir + "/garbage: "},
		{"empty", Config{Kubeconfig: file("empty", "")}, "no current-context"},
		{"no such context", Config{Kubeconfig: kubetest.Kubeconfig(t, "http://h"), Context: "y"}, `context "y" does not exist`},
		{"bad server", Config{Kubeconfig: kubetest.Kubeconfig(t, "'http://[::1'")}, "kubernetes client: "},
		{"no certificate file", Config{Kubeconfig: file("cert", "clusters:\n- name: c\n  cluster: {server: https://h, certificate-authority: none.crt}\ncontexts:\n- name: x\n  context: {cluster: c}\ncurrent-context: x\n")}, "none.crt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.config)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("New: %v, want one line with %q", err, tt.want)
			}
		})
	}
}
