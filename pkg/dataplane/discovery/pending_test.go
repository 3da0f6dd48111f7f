package discovery

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestPendingErrorsNameTheControlPlane: who waits in vain is told which control plane, and what is the matter with it.
func TestPendingErrorsNameTheControlPlane(t *testing.T) {
	tell := func(w *world, never bool, want ...string) {
		t.Helper()
		_, err := w.within(3*time.Second, "a")
		if !errors.Is(err, ErrDiscoveryPending) || errors.Is(err, ErrNeverConnected) != never {
			t.Fatalf("error %v", err)
		}
		for _, text := range append(want, "cluster a: discovery has not been answered") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q lacks %q", err, text)
			}
		}
		if strings.Contains(err.Error(), "context") {
			t.Errorf("%q speaks of a context", err)
		}
	}
	bubble(t, func(c *Config) { c.Servers = []string{"none"} }, func(w *world) {
		w.run()
		tell(w, true, "no control plane has been reached, now trying none, last error: none: ")
	})
	bubble(t, nil, func(w *world) {
		w.server.deaf = true
		w.run()
		tell(w, false, "in time by the control plane "+w.Status().Server+", whose stream is open")
	})
	bubble(t, nil, func(w *world) {
		w.run()
		lost := time.Now().UTC().Format("15:04:05.000Z")
		w.server.stop()
		pass(time.Second)
		address := w.Status().Server
		tell(w, false, "the control plane is lost since "+lost+", now trying "+address+", last error: "+address+": ")
	})
}
