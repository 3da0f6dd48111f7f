package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestPanic: a defect of ours costs the one connection or stream that met it. It is logged with its stack and
// counted as internal_error, and everybody else is served.
func TestPanic(t *testing.T) {
	for i := range 4 {
		h2, late := i%2 > 0, i/2 > 0
		t.Run(fmt.Sprintf("http2=%v, with an endpoint=%v", h2, late), func(t *testing.T) {
			r := newRig(t)
			r.disc.countDefect = late
			var log logBuffer
			r.cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
			r.again()
			r.putCluster(&discovery.Cluster{HTTP2: h2}, newBackend(t, "a", nil).addr)
			tr := transport(h2)
			defer tr.CloseIdleConnections()
			get := func() (*http.Response, error) {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				q.Host = echo
				return tr.RoundTrip(q)
			}
			r.disc.fail("a defect put in by the test")
			if resp, err := get(); err == nil {
				_ = resp.Body.Close()
				t.Errorf("an answer in spite of it: %d", resp.StatusCode)
			}
			r.disc.fail(nil)
			testwait.Until(t, "the endpoint is free again", func() bool { return r.set.Status()[0].Endpoints[0].InFlight == 0 })
			resp, err := get()
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "a" {
				t.Errorf("afterwards: %q, %v", b, err)
			}
			_ = resp.Body.Close()
			r.counted("internal_error", 1)
			if n := r.total("freshmesh_panics_total"); n != 1 {
				t.Errorf("%v panics counted", n)
			}
			for _, part := range []string{"a defect put in by the test", "fakeDiscovery"} {
				if !log.has(part) {
					t.Errorf("the log lacks %q", part)
				}
			}
		})
	}
}

// brittleUpstream panics when it is to dial.
type brittleUpstream struct{ upstream.Upstream }

func (brittleUpstream) Dial(context.Context) (*upstream.Raw, error) {
	panic("a defect put in by the test")
}

// TestPanicOnTheWayToAnEndpoint: a panic in a goroutine of an endpoint's is the failure of the requests that wait for it.
func TestPanicOnTheWayToAnEndpoint(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t, func(c *endpoints.Config) {
			c.NewUpstream = func(u upstream.Config) upstream.Upstream { return brittleUpstream{upstream.New(u)} }
		})
		r.put2(true, nil, newBackend(t, "a", nil).addr)
		got := r.ask(t.Context(), grpc, echo)
		if grpc != got.brokenOff || !grpc && !strings.Contains(got.proxyStatus, "reason="+string(upstream.Internal)) {
			t.Errorf("%+v", got)
		}
		r.counted("internal_error", 1)
		if n := r.total("freshmesh_panics_total"); n != 1 {
			t.Errorf("%v panics counted", n)
		}
		if n := r.set.Status()[0].Endpoints[0].InFlight; n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}
