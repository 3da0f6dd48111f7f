package ack_test

import (
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// What a response carried that was overtaken is on its way as much as what the
// newer one carries: a client that dropped it meanwhile and now asks for
// everything comes to hold it. Found by a random history, in which nobody followed
// a removed assignment.
func TestWhatWasOvertakenIsOnItsWay(t *testing.T) {
	t.Parallel()
	first, second, third := mesh.Intern("first"), mesh.Intern("second"), mesh.Intern("third")
	now := time.Unix(0, 0)
	send := func(tr *ack.Tracker, nonce uint64, name mesh.Name) {
		tr.Ask(name, "", now)
		tr.Sent(nonce, now, []ack.Carried{{Name: name, Version: "1"}})
	}
	for name, c := range map[string]struct {
		do        func(*ack.Tracker)
		abandoned bool
	}{
		"dropped, then overtaken": {do: func(tr *ack.Tracker) {
			send(tr, 1, first)
			tr.Drop(first)
			send(tr, 2, second)
		}, abandoned: true},
		"overtaken, then dropped": {do: func(tr *ack.Tracker) {
			send(tr, 1, first)
			send(tr, 2, second)
			tr.Drop(first)
		}, abandoned: true},
		"overtaken twice": {do: func(tr *ack.Tracker) {
			send(tr, 1, first)
			send(tr, 2, second)
			send(tr, 3, third)
			tr.Drop(first)
		}, abandoned: true},
		"sent again": {do: func(tr *ack.Tracker) {
			send(tr, 1, first)
			tr.Drop(first)
			send(tr, 2, first)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := ack.NewStream(ack.Policy{}, now).Track("eds", 1)
			c.do(tr)
			if got := tr.Abandoned(first); got != c.abandoned {
				t.Errorf("abandoned: %t, want %t", got, c.abandoned)
			}
			if got := slices.Contains(tr.Forgotten(), first); got != c.abandoned {
				t.Errorf("forgotten: %t, want %t", got, c.abandoned)
			}
			if !tr.Ack(3, now) && !tr.Ack(2, now) {
				t.Fatal("nothing was in flight")
			}
			if tr.Abandoned(first) || slices.Contains(tr.Forgotten(), first) {
				t.Error("still on its way after the answer to what came later")
			}
		})
	}
}
