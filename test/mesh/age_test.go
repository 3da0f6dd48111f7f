package mesh

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// An update was withheld and its old endpoint lives, so that nothing fails: a
// person resets discovery, of the cluster or of all, and the proxy learns the truth.
func TestResetDiscoveryBringsAWithheldUpdate(t *testing.T) {
	for name, query := range map[string]string{"cluster": "?cluster=" + authority, "all": ""} {
		t.Run(name, func(t *testing.T) {
			w := withhold(t, nil)
			if answeredWithin(w.client, "new", 500*time.Millisecond) {
				t.Fatal("healed before the reset: the test does not bite")
			}
			meshtest.Post(t, w.proxy.Admin, "/admin/reset-discovery"+query)
			if !answeredWithin(w.client, "new", 5*time.Second) {
				t.Fatal("the new endpoint was not used within 5 s")
			}
		})
	}
}

// The same without a person: what the control plane said becomes too old, and
// is asked for again, although traffic is steady and nothing fails.
func TestMaxAgeBringsAWithheldUpdate(t *testing.T) {
	const maxAge = 2 * time.Second
	w := withhold(t, func(c *dataplane.Config) { c.DiscoveryMaxAge = maxAge })
	if !answeredWithin(w.client, "new", maxAge+time.Second) {
		t.Fatalf("the new endpoint was not used within the maximum age of %v and a second", maxAge)
	}
	if w.relay.streams.Load() != w.streams {
		t.Error("healed on another stream: nothing may have been reset")
	}
}

// The same with the default of five minutes: it must not heal, or the test above proves nothing.
func TestWithheldUpdateStaysWithinMaxAge(t *testing.T) {
	w := withhold(t, nil)
	if answeredWithin(w.client, "new", 3*time.Second) {
		t.Fatal("healed although nothing was too old: the test does not bite")
	}
}
