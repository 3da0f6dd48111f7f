package ack_test

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestPatienceIsNoExcuse: a node that is given more time before its next reset
// counts as stale as soon as any other.
func TestPatienceIsNoExcuse(t *testing.T) {
	name, cur := mesh.Intern("a"), world{"a": "v1"}
	s := ack.NewStream(ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second, Extended: 40 * time.Second}, epoch)
	tr := s.Track(mesh.TypeEndpoint, 1)
	tr.Add(name)
	tr.Ask(name, "", epoch)
	tr.Sent(1, epoch, []ack.Carried{{Name: name, Version: "v1"}})
	for _, test := range []struct {
		at      time.Duration
		state   ack.State
		overdue bool
	}{{5 * time.Second, ack.Pending, false}, {6 * time.Second, ack.Stale, false}, {41 * time.Second, ack.Stale, true}} {
		now := epoch.Add(test.at)
		if got := s.State(mesh.TypeEndpoint, now, cur).State; got != test.state {
			t.Errorf("after %v: %s, want %s", test.at, got, test.state)
		}
		if _, overdue := s.Overdue(now); overdue != test.overdue {
			t.Errorf("after %v: overdue %v, want %v", test.at, overdue, test.overdue)
		}
	}

	held := ack.NewStream(s.Policy, epoch)
	tr = held.Track(mesh.TypeEndpoint, 1)
	tr.Add(name)
	tr.Ask(name, "", epoch)
	tr.Sent(1, epoch, []ack.Carried{{Name: name, Version: "v1"}})
	tr.Ack(1, epoch)
	held.ConfirmedAt = epoch
	if got := held.State(mesh.TypeEndpoint, epoch.Add(16*time.Second), cur).State; got != ack.Stale {
		t.Errorf("16 s after its last answer: %s, want %s", got, ack.Stale)
	}
}
