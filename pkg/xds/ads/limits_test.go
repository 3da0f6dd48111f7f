package ads

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// Every step of a stream looks at each of its types.
func TestTypesAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	store := snapshot.New(snapshot.Config{})
	s := New(Config{Delta: true, Policy: ack.Policy{ProbeInterval: time.Hour, AckTimeout: time.Hour}, MaxNames: 100_000}, store.View(mesh.View{}), now)
	for i := range maxTypes + 1 {
		if reason := s.Tick(now); reason != "" {
			t.Fatalf("%d types: closed for %s", i, reason)
		}
		s.Request(Request{Type: mesh.Type(fmt.Sprint("t", i))}, now)
	}
	if reason := s.Tick(now); reason != CloseTooManyNames {
		t.Errorf("%d types: %q, want %s", maxTypes+1, reason, CloseTooManyNames)
	}
}
