package ads_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/google/go-cmp/cmp"
)

// caused is an update by one object.
func caused(object string, resources ...mesh.Resource) mesh.Update {
	for i := range resources {
		resources[i].Cause = mesh.Cause{Object: mesh.Key{Kind: mesh.KindService, Name: object}, ResourceVersion: "7"}
	}
	return mesh.Update{Put: resources}
}

// changes is who caused what an ACK completed.
func changes(out ads.Outcome) []string {
	var names []string
	for _, c := range out.Changes {
		names = append(names, c.Cause.Object.Name)
	}
	return names
}

func (b *bench) wants(what string, out ads.Outcome, names ...string) {
	b.t.Helper()
	if diff := cmp.Diff(names, changes(out)); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (b *bench) subscribed(c ads.Config, names ...string) *bench {
	b.t.Helper()
	for _, t := range []mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint} {
		if c.Delta {
			b.s.Request(ads.Request{Type: t, Subscribe: names}, b.now)
		} else {
			b.s.Request(ads.Request{Type: t, Names: names}, b.now)
		}
		for r := b.next(); r != nil; r = b.next() {
			b.answer(c, r, names)
		}
	}
	return b
}

// answer acknowledges; a SotW request says the names again.
func (b *bench) answer(c ads.Config, r *ads.Response, names []string) ads.Outcome {
	b.t.Helper()
	if c.Delta {
		return b.ack(r)
	}
	return b.s.Request(ads.Request{Type: r.Type, Nonce: r.Nonce, Names: names}, b.now)
}

// A change counts once, with the ACK that completes it, whatever else is sent.
func TestChangeCountsOnce(t *testing.T) {
	for _, c := range []ads.Config{{Delta: true}, {}} {
		t.Run(fmt.Sprintf("delta=%v", c.Delta), func(t *testing.T) {
			names := []string{"A", "B"}
			b := newBench(t, c)
			b.publish(caused("start", resource(mesh.TypeCluster, "A", 0, 0), eds("A", 0), eds("B", 0)))
			b.subscribed(c, names...)

			b.publish(caused("one", eds("A", 1)))
			b.now = b.now.Add(time.Second)
			r := b.next()
			b.now = b.now.Add(2 * time.Second)
			out := b.answer(c, r, names)
			b.wants("a change", out, "one")
			if sent := out.Changes[0]; b.now.Sub(sent.SentAt) != 2*time.Second || b.now.Sub(sent.PublishedAt) != 3*time.Second {
				t.Errorf("times of %+v at %v", sent, b.now)
			}

			b.s.ResendAll("", b.now)
			for r := b.next(); r != nil; r = b.next() {
				b.wants("a resend", b.answer(c, r, names))
			}

			b.publish(caused("two", eds("A", 2), eds("B", 2)))
			r = b.next()
			refused := b.s.Request(ads.Request{Type: r.Type, Nonce: r.Nonce, Names: names, Refused: true}, b.now)
			b.wants("a refusal", refused)
			b.publish(caused("three", eds("A", 3)))
			again := 0
			for r := b.next(); r != nil; r = b.next() {
				again += len(changes(b.answer(c, r, names)))
			}
			if again != 2 { // "two" with B, which is tried again, and "three" with A
				t.Errorf("after a refusal %d changes, want 2", again)
			}

			b.publish(caused("four", eds("A", 4)))
			r = b.next()
			b.publish(caused("five", eds("A", 5)))
			b.wants("overtaken while in flight", b.answer(c, r, names), "four")
			b.wants("the newer one", b.answer(c, b.next(), names), "five")
		})
	}
}

// A new service is one change, and arrives with the last of its types.
func TestChangeOfTwoTypesCountsOnce(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		b := newBench(t, ads.Config{Delta: true}).subscribed(ads.Config{Delta: true}, "A")
		b.publish(caused("new", resource(mesh.TypeCluster, "A", 1, 0), eds("A", 1)))
		responses := []*ads.Response{b.next(), b.next()}
		if responses[0].Type == responses[1].Type {
			t.Fatalf("two responses of %s", responses[0].Type)
		}
		b.wants("the first ACK", b.ack(responses[order[0]]))
		b.wants("the second ACK", b.ack(responses[order[1]]), "new")
	}
}

// A change that takes several responses of a type counts with the last.
func TestChangeInPartsCountsOnce(t *testing.T) {
	c := ads.Config{Delta: true, MaxBytes: 1}
	b := newBench(t, c).subscribed(c, "A", "B")
	b.publish(caused("both", eds("A", 1), eds("B", 1)))
	b.wants("the first part", b.ack(b.next()))
	b.wants("the second part", b.ack(b.next()), "both")
}

// What changed while a client had no stream counts when it comes back, but not
// what it holds already.
func TestChangeWhileAwayCountsOnce(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true})
	b.publish(caused("kept", eds("A", 1)))
	b.publish(caused("missed", eds("B", 1)))
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A", "B"}, Initial: map[string]string{
		"A": string(b.store.View(mesh.View{}).Version(mesh.TypeEndpoint, mesh.Intern("A"))), "B": "another",
	}}, b.now)
	b.wants("back", b.ack(b.next()), "missed")
}
