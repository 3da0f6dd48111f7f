package relay_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// TestIdleAfterALargeHead: an idle connection does not keep the room that a large head took.
func TestIdleAfterALargeHead(t *testing.T) {
	const all, more = 100, 40 << 10
	r := start(t, relay.Config{Limits: http1.Limits{Fields: 1 << 20}}, backend(t, func(http.ResponseWriter, *http.Request) {}))
	each := func(head string) int {
		before := heap()
		for range all {
			c := r.dial()
			c.send(get(head))
			if resp, _ := c.response(http.MethodGet); resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
		}
		return (heap() - before) / all
	}
	each("")
	small := each("")
	for name, head := range map[string]string{
		"many fields": strings.Repeat("x:\r\n", 10_000), "a name with capitals": strings.Repeat("X", 60<<10) + ": y\r\n",
	} {
		if n := each(head); n > small+more {
			t.Errorf("%s: %d bytes for each connection, and %d after a small head", name, n, small)
		}
	}
}

// heap is how much memory is in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
