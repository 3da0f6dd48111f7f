package xds_test

import (
	"testing"
	"testing/synctest"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// A client that comes back goes on to use what it had. Until it acknowledges something,
// what that is is not known, which is not the same as that it has nothing.
func TestTellOfAClientThatCameBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeEndpoint, "A", "v1"))
		name := mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "A"}
		state := func() ack.ResourceState {
			synctest.Wait()
			told, known, err := r.server.Tell(t.Context(), "n", func(snapshot.View) []mesh.ResourceName { return []mesh.ResourceName{name} })
			if err != nil || !known || len(told.Holdings) != 1 {
				t.Fatalf("%+v, %v, %v", told, known, err)
			}
			return told.Holdings[0].ResourceState
		}
		s := r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeEndpoint, "A")
		s.ExpectAcked("eds +A@v1")
		if is := state(); is.Stage != ack.Held || is.Unknown {
			t.Errorf("acknowledged: %+v", is)
		}
		s.Close()
		r.put(xdstest.Resource(mesh.TypeEndpoint, "A", "v2"))
		s = r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeEndpoint, "A")
		synctest.Wait()
		if is := state(); is.Stage != ack.Unanswered || is.Held != "" || !is.Unknown {
			t.Errorf("came back, and holds v1: %+v", is)
		}
		s.ExpectAcked("eds +A@v2")
		r.put(xdstest.Resource(mesh.TypeEndpoint, "A", "v3"))
		if is := state(); is.Stage != ack.Unanswered || is.Held == "" || is.Unknown {
			t.Errorf("acknowledged v2: %+v", is)
		}
	})
}
