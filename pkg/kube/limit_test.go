package kube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": time.Second, "0": time.Second, "7": 7 * time.Second, "3600": time.Minute, "-1": time.Second, "soon": time.Second,
		"99999999999999999999":                            time.Second,
		now.Add(20 * time.Second).Format(http.TimeFormat): 20 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       time.Second,
		now.Add(time.Hour).Format(http.TimeFormat):        time.Minute,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// answers is a transport that gives one answer after the other, the last one again and again.
type answers struct {
	all  []*http.Response
	sent int
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	a.sent++
	return a.all[min(a.sent, len(a.all))-1], nil
}

func response(code int, after string) *http.Response {
	w := httptest.NewRecorder()
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(code)
	return w.Result()
}

// TestLimitsAreHeeded: for as long as the server asks, nothing is sent, and the error says so.
func TestLimitsAreHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLimits(nil), &answers{all: []*http.Response{response(429, "5"), response(200, "")}}
		ask := func() string {
			r, err := l.wrap(server).RoundTrip(httptest.NewRequest(http.MethodGet, "http://api/", nil))
			if err != nil {
				return err.Error()
			}
			return r.Status
		}
		for range 3 {
			if got := ask(); got != "limits our requests (429), asks to wait 5s" {
				t.Fatal(got)
			}
			time.Sleep(1600 * time.Millisecond) // bubble time
		}
		if server.sent != 1 {
			t.Errorf("%d requests were sent within the time, want 1", server.sent)
		}
		time.Sleep(time.Second) // bubble time
		if got := ask(); got != "200 OK" || server.sent != 2 {
			t.Errorf("after it: %s, %d were sent", got, server.sent)
		}
		if n := testutil.ToFloat64(l.count); n != 1 {
			t.Errorf("%v are counted, want 1", n)
		}
	})
}

// TestLimitedServer: a server that answers 429 is named as such, is not asked before its time, and takes nothing away.
func TestLimitedServer(t *testing.T) {
	t.Parallel()
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Node("n"))
	p := apiproxy.Start(t, "http://"+a.Address, nil)
	registry := prometheus.NewRegistry()
	s, err := New(Config{Kubeconfig: kubetest.Kubeconfig(t, "http://"+p.Address), CheckInterval: 1800 * time.Millisecond, Registerer: registry})
	must(t, err)
	r := run(t, s)
	r.is(true, true, "")
	p.Set(func(f *apiproxy.Faults) { f.Status[""] = 429 })
	before := total(p)
	began := time.Now()
	r.is(true, false, p.Address+" limits our requests (429), asks to wait 1s")
	if _, err := s.Read(t.Context(), mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}); err == nil || !strings.Contains(err.Error(), "asks to wait 1s") {
		t.Errorf("Read: %v", err)
	}
	r.until("watches that ended", func() bool {
		return strings.Contains(feedOf(s.Status(), "services").Reason+feedOf(s.Status(), "endpointslices").Reason, "(429)")
	})
	// Requests that are under way when the first is limited are answered as well: at most one for each kind, and the probe.
	if n, most := total(p)-before, (1+int(time.Since(began)/time.Second))*(len(resources)+1); n > most {
		t.Errorf("%d requests within %v, want %d at most", n, time.Since(began), most)
	}
	p.Set(func(f *apiproxy.Faults) { clear(f.Status) })
	r.is(true, true, "")
	families, err := registry.Gather()
	must(t, err)
	counted := 0.0
	for _, f := range families {
		if f.GetName() == "freshmesh_source_limited_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted == 0 {
		t.Error("nothing is counted")
	}
	for _, f := range s.Status().Feeds {
		if f.Relists > 0 {
			t.Errorf("%s were listed anew: %s", f.Name, f.RelistReason)
		}
	}
	r.noDeletes()
}

func total(p *apiproxy.Proxy) int {
	n := 0
	for _, count := range p.Counts() {
		n += count
	}
	return n
}
