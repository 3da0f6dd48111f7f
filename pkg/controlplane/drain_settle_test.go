package controlplane_test

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestDrainSettles: what was sent before the ACK may be on its way, so the answer
// comes a little after the last of them, and not at once; who asks later waits for nothing.
func TestDrainSettles(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		const after = 250 * time.Millisecond
		source := newObjects(serviceOf("echo"), sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}, at{pod: "b", ip: "10.0.0.2"}))
		p := startPlane(t, source, func(c *controlplane.Config) { c.DrainSettle = after })
		time.Sleep(drain.Grace + time.Second) // bubble time
		first, last := p.open(t, protocol, "first"), p.open(t, protocol, "last")
		for _, s := range []*xdstest.Stream{first, last} {
			s.Subscribe(mesh.TypeEndpoint, echo)
			acked(s)
		}
		done := make(chan string)
		go func() { done <- ask(t, p.Server, podA, 20*time.Second) }()
		settle()
		terminate(source)
		acked(first)
		r := last.Expect()
		time.Sleep(time.Second) // bubble time
		want(t, "one has acknowledged", ask(t, p.Server, podA, 0), "pending last")
		last.Ack(r)
		acknowledged := time.Now()
		time.Sleep(after - time.Millisecond) // bubble time
		want(t, "not settled", ask(t, p.Server, podA, 0), "settling")
		want(t, "settled", <-done, "drained")
		if took := time.Since(acknowledged); took < after || took > after+50*time.Millisecond {
			t.Errorf("answered %v after the last ACK, want %v", took, after)
		}
		want(t, "asked again", ask(t, p.Server, podA, 0), "drained")
		want(t, "never listed", ask(t, p.Server, drain.Target{Endpoint: mustEndpoint("10.9.9.9:80")}, 0), "drained")

		source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}, at{pod: "b", ip: "10.0.0.2"}))
		settle()
		acked(first)
		acked(last)
		terminate(source)
		acked(first)
		acked(last)
		settle()
		want(t, "anew", ask(t, p.Server, podA, 0), "settling")
		time.Sleep(after) // bubble time
		want(t, "anew, settled", ask(t, p.Server, podA, 0), "drained")
	})
}
