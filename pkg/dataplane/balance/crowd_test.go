package balance_test

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
)

// A new pod among ten, and a hundred clients that all see it in the same moment and know nothing of each other: it
// is tried as often as two choices out of ten allow, and not by everybody because it is idle.
func TestNewEndpointOfManyClients(t *testing.T) {
	const clients, pods = 100, 10
	now := time.Unix(1e9, 0)
	for _, perClient := range []int{1, 20} { // 20: at once, before any answer
		got := 0
		for range clients {
			entries := fleet(1, 0, pods, 0, 0)
			before := balance.New(balance.Config{}, entries[1:], nil)
			for i := range 200 {
				e := before.Pick(balance.Request{Now: now.Add(time.Duration(i) * time.Millisecond)})
				e.Load.Begin()
				e.Load.Observe(now.Add(time.Duration(i)*time.Millisecond), 10*time.Millisecond, true)
				e.Load.End()
			}
			entries[0].Since = now.Add(200 * time.Millisecond)
			after := balance.New(balance.Config{}, entries, before)
			for range perClient {
				e := after.Pick(balance.Request{Now: now.Add(200 * time.Millisecond)})
				e.Load.Begin()
				if e == entries[0] {
					got++
				}
			}
		}
		// Two choices of ten have the new one among them in a fifth of all cases.
		if all := clients * perClient; got > all*7/20 || got == 0 {
			t.Errorf("%d requests a client: the new one gets %d of %d, a fair share is %d", perClient, got, all, all/pods)
		}
	}
}
