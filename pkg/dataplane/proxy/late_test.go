package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestLateNamesTheEndpoint: whichever versions of HTTP the two sides speak, a request whose time is over says the
// same: which endpoint it waited for, and what for.
func TestLateNamesTheEndpoint(t *testing.T) {
	const limit = 100 * time.Millisecond
	timeout := func(c *discovery.Cluster) { c.Timeout = limit }
	perTry := func(c *discovery.Cluster) { c.Retry = &discovery.Retry{On: []string{"5xx"}, PerTryTimeout: limit} }
	for _, c := range []struct {
		what    string
		backend func(testing.TB) *backend
		change  func(*discovery.Cluster)
		reason  upstream.Reason
		cause   string
	}{
		{"no answer", held, timeout, upstream.Deadline, "no answer within the time for the request"},
		{"half an answer", streaming, timeout, upstream.Deadline, "the answer did not end within the time for the request"},
		{"no answer to an attempt", held, perTry, upstream.TryTimeout, "no answer within 100ms, the time for one attempt"},
	} {
		for _, client2 := range []bool{false, true} {
			for _, server2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/client2=%v server2=%v", c.what, client2, server2), func(t *testing.T) {
					r := newRig(t)
					var out logBuffer
					r.logTo(&out)
					b := c.backend(t)
					r.put2(server2, c.change, b.addr)
					got := r.ask(t.Context(), client2, echo)
					text := fmt.Sprintf("upstream: %s: %s: %s", c.reason, b.addr, c.cause)
					hop := fmt.Sprintf(`next-hop="%s"`, b.addr)
					if got.status != 200 && (!strings.Contains(got.line, "freshmesh: "+text) || !strings.Contains(got.proxyStatus, hop)) {
						t.Errorf("%+v, want %q and %s", got, text, hop)
					}
					if n := out.next(t, 1); n.Error != text {
						t.Errorf("logged %q, want %q", n.Error, text)
					}
				})
			}
		}
	}
}
