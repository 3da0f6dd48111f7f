package controlplane_test

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestDrainPodOfProxyGone: a proxy that left before it acknowledged holds a
// drain up for as long as its pod may run, and not a moment longer; the audit and explain say how it is.
func TestDrainPodOfProxyGone(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"namespace": "default", "pod": "client"})
	if err != nil {
		t.Fatal(err)
	}
	client := &mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "client"), UID: "1"}}
	ended := &mesh.Pod{Meta: client.Meta, Ended: true}
	for _, test := range []struct {
		name  string
		node  *corev3.Node
		pod   *mesh.Pod
		gone  func(*objects)
		while string
		after string
	}{
		{
			"deleted, by the id", &corev3.Node{Id: "client.default"}, client,
			func(o *objects) { o.remove(client.Key) }, "pod default/client still runs", "pod default/client deleted at ",
		},
		{
			"deleted, by the metadata", &corev3.Node{Id: "n", Metadata: metadata}, client,
			func(o *objects) { o.remove(client.Key) }, "pod default/client still runs", "pod default/client deleted at ",
		},
		{
			"ended", &corev3.Node{Id: "client.default"}, client,
			func(o *objects) { o.put(ended) }, "pod default/client still runs", "pod default/client ended at ",
		},
		{"never known", &corev3.Node{Id: "client.default"}, nil, nil, "nothing tells that its pod default/client is gone", ""},
		{"no pod", &corev3.Node{Id: "client"}, nil, nil, "left before it acknowledged", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, protocol xdstest.Protocol) {
				source, p := grown(t)
				if test.pod != nil {
					source.put(test.pod)
				}
				s := xdstest.Open(t, p.conn, protocol, test.node)
				s.Subscribe(mesh.TypeEndpoint, echo)
				acked(s)
				settle()
				terminate(source)
				s.Expect()
				s.Close()
				settle()
				r, err := p.Drain(t.Context(), podA, 0)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "it left", text(r), "disconnected "+test.node.GetId())
				if !strings.Contains(r.Waits[0].Detail, test.while) {
					t.Errorf("while it may run: %q, want %q", r.Waits[0].Detail, test.while)
				}
				if test.gone == nil {
					return
				}
				begin, done := time.Now(), make(chan string)
				go func() { done <- ask(t, p.Server, podA, 20*time.Second) }()
				time.Sleep(time.Second) // bubble time
				settle()
				test.gone(source)
				want(t, "gone", <-done, "drained")
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("drained %v after it was asked for, want a second", took)
				}
				a, err := p.Audit(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				if n := a.Nodes[0]; n.PodGoneAt == nil || !strings.Contains(n.Reason, test.after) {
					t.Errorf("audit: %q, pod gone at %v, want %q", n.Reason, n.PodGoneAt, test.after)
				}
				story, err := p.Explain(t.Context(), mesh.NodeID(test.node.GetId()), echo, "")
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(story.Summary, "its pod is gone since ") || !strings.Contains(story.State.Reason, test.after) {
					t.Errorf("explain: %q, %q", story.Summary, story.State.Reason)
				}
			})
		})
	}
}

// TestDrainPodComesAgain: of a pod that has come again under its name, the new one counts, until it makes up for the old one.
func TestDrainPodComesAgain(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		client := &mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "web-0"), UID: "1"}}
		source.put(client)
		s := p.open(t, protocol, "web-0.default")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		terminate(source)
		s.Expect()
		s.Close()
		settle()
		source.remove(client.Key)
		settle()
		source.put(&mesh.Pod{Meta: mesh.Meta{Key: client.Key, UID: "2"}})
		settle()
		want(t, "the new one runs", ask(t, p.Server, podA, 0), "disconnected web-0.default")
		time.Sleep(time.Second) // bubble time
		s = p.open(t, protocol, "web-0.default")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		want(t, "the new one has acknowledged", ask(t, p.Server, podA, drain.Grace/2), "drained")
	})
}
