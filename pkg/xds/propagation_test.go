package xds_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// stages reads freshmesh_propagation_seconds: how often each stage and origin was observed, and the sum.
func stages(t *testing.T, vec *prometheus.HistogramVec) (counts map[string]uint64, sums map[string]float64) {
	t.Helper()
	counts, sums = map[string]uint64{}, map[string]float64{}
	registry := prometheus.NewRegistry()
	registry.MustRegister(vec)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			key := labels["stage"] + " " + labels["origin"]
			counts[key], sums[key] = m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
		}
	}
	return counts, sums
}

// A change counts once a node, from its own time to the ACK; what is sent again
// or was there before counts not at all, and clocks that differ give nothing negative.
func TestPropagation(t *testing.T) {
	for _, p := range []xdstest.Protocol{xdstest.SotW, xdstest.Delta} {
		t.Run(string(p), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { propagation(t, p) })
		})
	}
}

func propagation(t *testing.T, p xdstest.Protocol) {
	t.Helper()
	vec := xds.Propagation()
	r := newRig(t, func(c *xds.Config) { c.Propagation = vec })
	change := func(label string, c mesh.Cause) {
		res := xdstest.Resource(mesh.TypeEndpoint, "a", label)
		c.Object = mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: "default", Name: label}
		res.Cause = c
		r.put(res)
	}
	change("there before", mesh.Cause{ChangedAt: time.Now().Add(-time.Hour), ChangedBy: mesh.ByTrigger})
	s := r.open(p, "n")
	s.Subscribe(mesh.TypeEndpoint, "a")
	s.Ack(s.Expect())
	s.Silent()
	if counts, _ := stages(t, vec); len(counts) > 0 {
		t.Errorf("before any change: %v", counts)
	}

	now := time.Now()
	change("triggered", mesh.Cause{ChangedAt: now.Add(-3 * time.Second), ChangedBy: mesh.ByTrigger, ReceivedAt: now.Add(-time.Second)})
	response := s.Expect()
	time.Sleep(2 * time.Second) // bubble time
	s.Ack(response)
	s.Silent()
	// Of a clock that is a minute ahead.
	change("ahead", mesh.Cause{ChangedAt: time.Now().Add(time.Minute), ChangedBy: mesh.ByManagedFields, ReceivedAt: time.Now()})
	s.Ack(s.Expect())
	s.Silent()
	counts, sums := stages(t, vec)
	for key, want := range map[string]struct {
		count uint64
		sum   float64
	}{"send ": {2, 0}, "ack ": {2, 2}, "total trigger": {1, 5}, "total managed-fields": {1, 0}} {
		if counts[key] != want.count || sums[key] < want.sum-.01 || sums[key] > want.sum+.01 {
			t.Errorf("%s: %d times, %v s together; want %d, %v", key, counts[key], sums[key], want.count, want.sum)
		}
	}
	if len(counts) != 4 {
		t.Errorf("observed %v", counts)
	}

	if _, _, err := r.server.Resync(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	s.Ack(s.Expect())
	again := r.open(p, "n")
	again.Subscribe(mesh.TypeEndpoint, "a")
	again.Ack(again.Expect())
	again.Silent()
	if after, _ := stages(t, vec); after["ack "] != 2 {
		t.Errorf("a resend and a reconnect count: %v", after)
	}
}

// What happens to a node is told, with what it was sent; and what it was sent is
// remembered over the end of its stream.
func TestEventsAndTell(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex // guards events
		var events []string
		r := newRig(t, func(c *xds.Config) {
			c.Events = func(e xds.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Node != "n" || e.At.IsZero() || (e.Generation > 0) != (e.Event.Event == "sent" || e.Event.Event == "probed") {
					t.Errorf("event %+v", e)
				}
				text := e.Event.Event + " " + e.Type
				for _, c := range e.Carried {
					text += " " + c.Name.Value()
				}
				events = append(events, strings.TrimSpace(text))
			}
		})
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "1"))
		s := r.open(xdstest.Delta, "n")
		s.Subscribe(mesh.TypeEndpoint, "a")
		s.Ack(s.Expect())
		time.Sleep(12 * time.Second) // bubble time
		s.Ack(s.Expect())
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "2"))
		s.Nack(s.Expect(), "no")
		s.Silent()
		s.Close()
		s.ExpectEnd()
		synctest.Wait() // the server has seen it, too
		s = r.open(xdstest.Delta, "n")
		s.Subscribe(mesh.TypeEndpoint, "a", "gone")
		s.Ack(s.Expect())
		s.Ack(s.Expect()) // that there is no such thing as gone
		s.Silent()

		told, known, err := r.server.Tell(t.Context(), "n", func(snapshot.View) []mesh.ResourceName {
			return []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: "a"}, {Type: mesh.TypeCluster, Name: "a"}}
		})
		if err != nil || !known || len(told.Holdings) != 1 || !told.Gone.IsZero() {
			t.Fatalf("told %+v, %v, %v", told, known, err)
		}
		if h := told.Holdings[0]; h.Stage != ack.Held || h.Held != h.Current || h.Body == nil {
			t.Errorf("holds %+v", h)
		}
		var sent []string
		for _, d := range told.Deliveries {
			sent = append(sent, fmt.Sprintf("%d %v %v", d.Generation, d.Refused, !d.AnsweredAt.IsZero()))
		}
		if diff := cmp.Diff([]string{"1 false true", "2 true true", "2 false true", "2 false true"}, sent); diff != "" {
			t.Errorf("deliveries (-want +got):\n%s", diff)
		}
		if _, known, err := r.server.Tell(t.Context(), "nobody", nil); known || err != nil {
			t.Errorf("nobody is known: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			"connected", "sent eds a", "acked eds", "probed eds", "acked eds", "sent eds a", "rejected eds", "disconnected",
			"connected", "sent eds a", "acked eds", "sent eds gone", "acked eds",
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}
