package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/drain/drainv1"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const echo = "echo.default.svc.cluster.local:8080"

var podA = drain.Target{Namespace: "default", Pod: "a"}

// ask gives "drained", or the waits as "REASON NODE", sorted.
func ask(t *testing.T, s *controlplane.Server, target drain.Target, timeout time.Duration) string {
	t.Helper()
	r, err := s.Drain(t.Context(), target, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return text(r)
}

func text(r drain.Report) string {
	if r.Drained {
		if len(r.Waits) > 0 {
			return fmt.Sprint("drained, and waits: ", r.Waits)
		}
		return "drained"
	}
	var out []string
	for _, w := range r.Waits {
		out = append(out, strings.TrimSpace(string(w.Reason)+" "+string(w.Node)))
	}
	return strings.Join(slices.Compact(out), ", ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// grown gives a control plane that knows its nodes, and serves pods a and b.
func grown(t *testing.T) (*objects, plane) {
	t.Helper()
	source := newObjects(serviceOf("echo"), sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}, at{pod: "b", ip: "10.0.0.2"}))
	p := startPlane(t, source)
	time.Sleep(drain.Grace + time.Second) // bubble time
	return source, p
}

func each(t *testing.T, f func(t *testing.T, protocol xdstest.Protocol)) {
	t.Helper()
	for _, protocol := range []xdstest.Protocol{xdstest.Delta, xdstest.SotW} {
		t.Run(string(protocol), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, protocol) })
		})
	}
}

// acked answers the next response and gives it.
func acked(s *xdstest.Stream) *xdstest.Response {
	r := s.Expect()
	s.Ack(r)
	return r
}

func settle() { synctest.Wait() }

// terminate makes pod a draining.
func terminate(source *objects) {
	source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1", terminating: true}, at{pod: "b", ip: "10.0.0.2"}))
	settle()
}

// TestDrainJustAfterTheStart: a server that began less than 30 s ago cannot know its nodes.
func TestDrainJustAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		source := newObjects(serviceOf("echo"), sliceOf("echo", at{pod: "b", ip: "10.0.0.2"}))
		source.put(&mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "a")}})
		p := startPlane(t, source)
		want(t, "at the start", ask(t, p.Server, podA, 0), "starting")
		want(t, "before 30 s", ask(t, p.Server, podA, 29*time.Second), "starting")
		want(t, "after 30 s", ask(t, p.Server, podA, 10*time.Second), "drained")
		if took := time.Since(begin); took < drain.Grace || took > drain.Grace+time.Second {
			t.Errorf("drained %v after the start, want 30 s", took)
		}
	})
}

// TestDrainWaitsForTheAnswer: listed, then pending, then drained at the ACK.
func TestDrainWaitsForTheAnswer(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		bystander := p.open(t, protocol, "bystander")
		bystander.Subscribe(mesh.TypeEndpoint, "other")
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		s.Expect() // sent, and not answered: it may have it, or what it had before
		settle()
		// In the state of the world nothing is sent to who asks for what does not exist; its ACK never comes.
		want(t, "at once", ask(t, p.Server, podA, 0), map[xdstest.Protocol]string{
			xdstest.Delta: "listed, pending bystander, pending n", xdstest.SotW: "listed, pending n",
		}[protocol])
		s.Close()
		bystander.Close()
		settle()
		time.Sleep(drain.Grace) // bubble time

		s = p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		want(t, "ready", ask(t, p.Server, podA, time.Second), "listed, listed n")
		begin, done := time.Now(), make(chan string)
		go func() { done <- ask(t, p.Server, podA, 20*time.Second) }()
		settle()
		terminate(source)
		r := s.Expect()
		want(t, "sent", ask(t, p.Server, podA, 0), "pending n")
		time.Sleep(2 * time.Second) // bubble time
		s.Ack(r)
		want(t, "acknowledged", <-done, "drained")
		if took := time.Since(begin) - 2*time.Second; took < 0 || took > 100*time.Millisecond {
			t.Errorf("heard of it %v after the ACK", took)
		}
		source.put(sliceOf("echo", at{pod: "b", ip: "10.0.0.2"}))
		settle()
		want(t, "gone, an ACK is missing", ask(t, p.Server, podA, 0), "drained")
		want(t, "by its address", ask(t, p.Server, drain.Target{Endpoint: mustEndpoint("10.0.0.1:8080")}, 0), "drained")
		want(t, "the other", ask(t, p.Server, drain.Target{Endpoint: mustEndpoint("10.0.0.2:8080")}, 0), "listed, pending n")
	})
}

func mustEndpoint(text string) drain.Endpoint {
	e, ok := drain.EndpointOf(text)
	if !ok {
		panic(text)
	}
	return e
}

// TestDrainRefused: who refuses the change uses what it had.
func TestDrainRefused(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		terminate(source)
		s.Nack(s.Expect(), "not like this")
		settle()
		r, err := p.Drain(t.Context(), podA, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "refused", text(r), "rejected n")
		if w := r.Waits[0]; w.Detail != "not like this" || w.Cluster != echo || w.Endpoint != "10.0.0.1:8080" || w.Since.IsZero() {
			t.Errorf("wait %+v", w)
		}
		source.put(sliceOf("echo", at{pod: "b", ip: "10.0.0.2"}))
		acked(s)
		settle()
		want(t, "taken", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainStale: who is past its deadline is named. Each change is answered
// just in time, and the next is on its way then.
func TestDrainStale(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}, at{pod: "b", ip: "10.0.0.2"}, at{pod: "c", ip: "10.0.0.3"}))
		r := s.Expect()
		terminate(source)
		time.Sleep(4900 * time.Millisecond) // bubble time
		want(t, "within its time", ask(t, p.Server, podA, 0), "pending n")
		s.Ack(r)
		r = s.Expect()
		time.Sleep(200 * time.Millisecond) // bubble time
		want(t, "past it", ask(t, p.Server, podA, 0), "stale n")
		s.Ack(r)
		settle()
		want(t, "answered", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainDisconnected: who left less than 30 s ago before it acknowledged
// counts, unless it came back and acknowledged.
func TestDrainDisconnected(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		s.Close()
		settle()
		left := time.Now()
		terminate(source)
		time.Sleep(29*time.Second - time.Since(left)) // bubble time
		want(t, "after 29 s", ask(t, p.Server, podA, 0), "disconnected n")
		done := make(chan string)
		go func() { done <- ask(t, p.Server, podA, 30*time.Second) }()
		want(t, "later", <-done, "drained")
		if took := time.Since(left); took < drain.Grace || took > 31*time.Second {
			t.Errorf("drained %v after it left, want 30 s", took)
		}
	})
}

// TestDrainSuccessor: a new stream makes up for the one before once it has acknowledged.
func TestDrainSuccessor(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		first, second := p.open(t, protocol, "n"), p.open(t, protocol, "n")
		for _, s := range []*xdstest.Stream{first, second} {
			s.Subscribe(mesh.TypeEndpoint, echo)
			acked(s)
		}
		settle()
		first.Close()
		settle()
		terminate(source)
		acked(second)
		settle()
		want(t, "one of two left", ask(t, p.Server, podA, 0), "disconnected n")
		time.Sleep(time.Second) // bubble time
		third := p.open(t, protocol, "n")
		third.Subscribe(mesh.TypeCluster, echo)
		acked(third)
		settle()
		want(t, "it came back, and has not asked", ask(t, p.Server, podA, 0), "disconnected n")
		third.Subscribe(mesh.TypeEndpoint, echo)
		r := third.Expect()
		settle()
		want(t, "it came back, and was answered", ask(t, p.Server, podA, 0), "disconnected n, pending n")
		third.Ack(r)
		settle()
		want(t, "it acknowledged", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainAckedBeforeItLeft: it had what it needed.
func TestDrainAckedBeforeItLeft(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		terminate(source)
		acked(s)
		settle()
		s.Close()
		settle()
		source.put(sliceOf("echo", at{pod: "b", ip: "10.0.0.2"}))
		settle()
		want(t, "left after its ACK", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainLastEndpoint: KEP-1669 keeps the last endpoint of a service in use.
func TestDrainLastEndpoint(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1", terminating: true}))
		acked(s)
		settle()
		want(t, "the last one", ask(t, p.Server, podA, time.Second), "last_endpoint, listed n")
		source.put(sliceOf("echo"))
		acked(s)
		settle()
		want(t, "removed", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainDeletedService: a delta stream is told; in the state of the world an assignment can only be given up.
func TestDrainDeletedService(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		source, p := grown(t)
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		source.remove(key(mesh.KindEndpointSlice, "echo-1"))
		source.remove(key(mesh.KindService, "echo"))
		settle()
		want(t, "deleted", ask(t, p.Server, podA, time.Second), "pending n")
		if protocol == xdstest.Delta {
			acked(s)
		} else {
			s.Unsubscribe(mesh.TypeEndpoint, echo)
		}
		settle()
		want(t, "heard of", ask(t, p.Server, podA, 0), "drained")
	})
}

// TestDrainUnknownPod: what nothing names may come yet.
func TestDrainUnknownPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := grown(t)
		want(t, "unknown", ask(t, p.Server, drain.Target{Namespace: "default", Pod: "nobody"}, time.Second), "pod_unknown")
	})
}

// TestDrainService: the barrier beside ADS says the same.
func TestDrainService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, p := grown(t)
		client := drainv1.NewDrainServiceClient(p.conn)
		ask := func(timeout time.Duration) *drainv1.DrainResponse {
			r, err := client.Drain(t.Context(), &drainv1.DrainRequest{Namespace: "default", Pod: "a", Timeout: durationpb.New(timeout)})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := ask(0)
		if r.GetDrained() || len(r.GetWaits()) != 1 || r.GetWaits()[0].GetReason() != "listed" || r.GetInstance() == "" {
			t.Errorf("while ready: %v", r)
		}
		terminate(source)
		if r := ask(time.Second); !r.GetDrained() || len(r.GetWaits()) > 0 || !slices.Equal(r.GetEndpoints(), []string{"10.0.0.1:8080"}) {
			t.Errorf("terminating: %v", r)
		}
	})
}

// TestManyDrains: fifty drains of a thousand nodes end with the last ACK.
func TestManyDrains(t *testing.T) {
	const nodes, drains = 1000, 50
	synctest.Test(t, func(t *testing.T) {
		var pods, terminating []at
		for i := range drains {
			pods = append(pods, at{pod: fmt.Sprint("p", i), ip: fmt.Sprint("10.0.1.", i+1)})
			terminating = append(terminating, at{pods[i].pod, pods[i].ip, true})
		}
		last := at{pod: "last", ip: "10.0.0.9"}
		source := newObjects(serviceOf("echo"), sliceOf("echo", append(pods, last)...))
		p := startPlane(t, source)
		time.Sleep(drain.Grace + time.Second) // bubble time
		streams := make([]*xdstest.Stream, nodes)
		for i := range streams {
			streams[i] = p.open(t, xdstest.Delta, fmt.Sprint("n", i))
			streams[i].Subscribe(mesh.TypeEndpoint, echo)
			acked(streams[i])
		}
		settle()
		done := make(chan string, drains)
		for _, pod := range pods {
			go func() { done <- ask(t, p.Server, drain.Target{Namespace: "default", Pod: pod.pod}, 30*time.Second) }()
		}
		settle()
		source.put(sliceOf("echo", append(terminating, last)...))
		for _, s := range streams[1:] {
			acked(s)
		}
		settle()
		time.Sleep(time.Second) // bubble time
		if len(done) > 0 {
			t.Fatal("a drain is over while a node has not acknowledged")
		}
		begin := time.Now()
		acked(streams[0])
		for range drains {
			want(t, "after the last ACK", <-done, "drained")
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("over %v after the last ACK", took)
		}
	})
}
