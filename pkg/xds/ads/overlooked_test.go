package ads_test

import (
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// A SotW client drops a name and wants it back while a response is on its way:
// both requests carry an old nonce and are void, the ACK names the same as ever,
// and the client has thrown the resource away. It must be sent again.
func TestNameDroppedInVoidRequestIsSentAgain(t *testing.T) {
	for name, names := range map[string][]string{"by name": {"A", "B"}, "wildcard": {"*"}} {
		t.Run(name, func(t *testing.T) {
			for _, typ := range []mesh.Type{mesh.TypeEndpoint, mesh.TypeCluster} {
				b := newBench(t, ads.Config{})
				b.publish(mesh.Update{Put: []mesh.Resource{resource(typ, "A", 0, 0), resource(typ, "B", 0, 0)}})
				ask := func(nonce string, names ...string) {
					b.s.Request(ads.Request{Type: typ, Nonce: nonce, Names: names}, b.now)
				}
				ask("", names...)
				first := b.next()
				ask(first.Nonce, names...)
				b.publish(mesh.Update{Put: []mesh.Resource{resource(typ, "B", 1, 0)}})
				second := b.next()
				ask(first.Nonce, "B")
				if _, current := b.s.Acks().HoldsCurrent(typ, mesh.Intern("A"), b.s.View()); current {
					t.Errorf("%s: A counts as held, and was thrown away", typ.Short())
				}
				ask(first.Nonce, names...)
				if r := b.next(); r != nil {
					t.Fatalf("%s: %v answers a request with an old nonce", typ.Short(), r)
				}
				ask(second.Nonce, names...)
				r := b.next()
				if r == nil || r.Resources[0].Name.Value() != "A" {
					t.Fatalf("%s: %v is sent, want A", typ.Short(), r)
				}
				ask(r.Nonce, names...)
				if r := b.next(); r != nil {
					t.Errorf("%s: %v is sent at rest", typ.Short(), r)
				}

				// Dropped for good: it is not sent.
				b.publish(mesh.Update{Put: []mesh.Resource{resource(typ, "B", 2, 0)}})
				third := b.next()
				ask(r.Nonce, "B")
				ask(third.Nonce, "B")
				if r := b.next(); r != nil && r.Resources[0].Name.Value() == "A" {
					t.Errorf("%s: A is sent, and was dropped", typ.Short())
				}
			}
		})
	}
}

// A SotW client refuses an empty LDS, asks for all, and accepts what it gets:
// that is the same whole state, so nothing is refused any more.
func TestOwedWholeStateSettlesWhatWasRefused(t *testing.T) {
	b := newBench(t, ads.Config{})
	b.s.Request(ads.Request{Type: mesh.TypeListener, Names: []string{"missing"}}, b.now)
	refused := b.next()
	b.s.Request(ads.Request{Type: mesh.TypeListener, Names: []string{"missing"}, Nonce: refused.Nonce, Refused: true}, b.now)
	b.s.Request(ads.Request{Type: mesh.TypeListener, Names: []string{"missing", "*"}, Nonce: refused.Nonce}, b.now)
	owed := b.next()
	b.s.Request(ads.Request{Type: mesh.TypeListener, Names: []string{"missing", "*"}, Nonce: owed.Nonce}, b.now)
	if st := b.s.Acks().State(mesh.TypeListener, b.now, b.s.View()); st.State != ack.Fresh || st.Behind > 0 {
		t.Errorf("%s, behind %d, want fresh", st.State, st.Behind)
	}
}

// A SotW client names what its wildcard covered: it lacks it for no shorter time than before.
func TestNamingWhatWasLackingGivesNoMoreTime(t *testing.T) {
	b := newBench(t, ads.Config{})
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 0)}})
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Names: []string{"*"}}, b.now)
	first := b.next()
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 1)}})
	b.now = b.now.Add(6 * time.Second)
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Names: []string{"A"}, Nonce: first.Nonce}, b.now)
	if st := b.s.Acks().State(mesh.TypeEndpoint, b.now, b.s.View()); st.State != ack.Stale {
		t.Errorf("%s, and A is lacking for 6 s; want %s", st.State, ack.Stale)
	}
}

// A delta client drops a name while a response with it is on its way, the
// resource is removed, and the client asks for all: it keeps what the response
// brings, and must be told that it is gone.
func TestWildcardCoversWhatIsOnItsWay(t *testing.T) {
	remove := mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "A"}}}}
	for name, ask := range map[string][]ads.Request{
		"by name":  {{Subscribe: []string{"A"}}, {Unsubscribe: []string{"A"}}},
		"wildcard": {{Subscribe: []string{"*"}}, {Unsubscribe: []string{"*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, ads.Config{Delta: true})
			b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 0)}})
			ask[0].Type, ask[1].Type = mesh.TypeEndpoint, mesh.TypeEndpoint
			b.s.Request(ask[0], b.now)
			first := b.next()
			b.publish(remove)
			b.s.Request(ask[1], b.now)
			b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"*"}}, b.now)
			b.ack(first)
			if _, current := b.s.Acks().HoldsCurrent(mesh.TypeEndpoint, mesh.Intern("A"), b.s.View()); current {
				t.Error("its absence counts as held, and the client holds it")
			}
			if r := b.next(); r == nil || !slices.Equal(r.Removed, []string{"A"}) {
				t.Errorf("%v is sent, want A removed", r)
			}
		})
	}
}

// The same with a name that was refused in the form that the client had.
func TestRefusedNameDroppedInVoidRequestIsNotHeld(t *testing.T) {
	b := newBench(t, ads.Config{})
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 0), eds("B", 0)}})
	request := func(nonce string, refused bool, names ...string) {
		b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Nonce: nonce, Refused: refused, Names: names}, b.now)
	}
	request("", false, "A")
	first := b.next()
	request(first.Nonce, false, "A")
	b.now = b.now.Add(10 * time.Second)
	b.s.Tick(b.now)
	probe := b.next()
	request(probe.Nonce, true, "A")
	request(probe.Nonce, false, "A", "B")
	b.next()
	request(probe.Nonce, false, "B")
	if _, current := b.s.Acks().HoldsCurrent(mesh.TypeEndpoint, mesh.Intern("A"), b.s.View()); current {
		t.Error("A counts as held, and was thrown away")
	}
}
