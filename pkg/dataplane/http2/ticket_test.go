package http2

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// later decides in goroutines of its own.
type later struct {
	decide func(k Ticket)
	wg     sync.WaitGroup
}

func (l *later) Request(k Ticket, _ *message.Request) (Decider, Decision) {
	l.wg.Go(func() { l.decide(k) })
	return &plain{}, Decision{Later: true}
}

// TestLater: what is decided in another goroutine holds as what is decided at once, and a Ticket that is old does nothing.
func TestLater(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(answer)))
	pool := rig.pools[0]
	tests := []struct {
		name   string
		decide func(k Ticket)
		status int
		text   string
	}{
		{"to a pool", func(k Ticket) { k.Resume(func(bool) Decision { return Decision{To: pool} }) }, 418, "5"},
		{"twice", func(k Ticket) {
			k.Resume(func(bool) Decision { return Decision{To: pool} })
			k.Resume(func(bool) Decision { return Decision{Reply: &Reply{Status: 500}} })
		}, 418, "5"},
		{"a reply", func(k Ticket) {
			k.Resume(func(bool) Decision { return Decision{Reply: &Reply{Status: 200, Body: "hello"}} })
		}, 200, "hello"},
		{"an error", func(k Ticket) {
			k.Resume(func(bool) Decision { return Decision{Error: &upstream.Error{Reason: upstream.NoEndpoints}} })
		}, 503, "no_endpoints"},
		{"a failure", func(k Ticket) { k.Fail(&upstream.Error{Reason: upstream.Draining}) }, 503, "draining"},
		{"a failure before a decision", func(k Ticket) {
			k.Fail(&upstream.Error{Reason: upstream.Draining})
			k.Resume(func(bool) Decision { return Decision{To: pool} })
		}, 503, "draining"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &later{decide: tt.decide}
			client := goClient(t)
			front := startHandler(t, h)
			for range 5 {
				resp, err := client.Post("http://"+front+"/", "text/plain", strings.NewReader("12345"))
				if err != nil {
					t.Fatal(err)
				}
				var text strings.Builder
				_ = resp.Write(&text)
				_ = resp.Body.Close()
				if resp.StatusCode != tt.status || !strings.Contains(text.String(), tt.text) {
					t.Errorf("%d %q", resp.StatusCode, text.String())
				}
			}
			h.wg.Wait()
		})
	}
}

// TestRetire: a pool that is retired takes nothing new, finishes what it has, and then has no connection.
func TestRetire(t *testing.T) {
	release := make(chan struct{})
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(204)
	})))
	client := goClient(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if code, _, _, err := get(t, client, rig.addr); code != 204 {
			t.Error(code, err)
		}
	})
	pool := rig.pools[0]
	testwait.Until(t, "it is on its way", func() bool { return pool.calls() == 1 })
	pool.Retire(time.Minute)
	if code, text, _, err := get(t, client, rig.addr); code != 503 || !strings.Contains(text, "endpoint_removed") {
		t.Errorf("%d %q %v", code, text, err)
	}
	close(release)
	wg.Wait()
	testwait.Until(t, "no connection is left", func() bool { return pool.connections() == 0 })
}

// TestRetireCuts: what is not over at the end of the drain time fails with the reason.
func TestRetireCuts(t *testing.T) {
	release := make(chan struct{})
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})))
	defer close(release)
	client := goClient(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if code, text, _, err := get(t, client, rig.addr); code != 503 || !strings.Contains(text, "endpoint_removed") {
			t.Errorf("%d %q %v", code, text, err)
		}
	})
	testwait.Until(t, "it is on its way", func() bool { return rig.pools[0].calls() == 1 })
	rig.pools[0].Retire(50 * time.Millisecond)
	wg.Wait()
}

// TestCloseIdle closes what carries nothing; the next request has a new connection made.
func TestCloseIdle(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(answer)))
	client := goClient(t)
	for range 3 {
		if code, _, _, err := get(t, client, rig.addr); code != 418 {
			t.Fatal(code, err)
		}
		testwait.Until(t, "nothing is on its way", func() bool { return rig.active() == 0 && rig.pools[0].calls() == 0 })
		rig.pools[0].CloseIdle()
		testwait.Until(t, "no connection is left", func() bool { return rig.pools[0].connections() == 0 })
	}
}

// active is how many requests clients have open.
func (r *relayRig) active() (n int) {
	for _, v := range r.all() {
		n += v.active()
	}
	return n
}

// TestCloseIdleLeavesWhatIsWaitedFor: a connection that somebody waits for a place on carries nothing yet, and is not idle:
// the dial of the next request would else close it, where there may be no other.
func TestCloseIdleLeavesWhatIsWaitedFor(t *testing.T) {
	raise := make(chan struct{})
	var made atomic.Int32
	address := netip.MustParseAddrPort(scripted(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 0}}, func(c *rawConn) {
		made.Add(1)
		<-raise
		_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		c.respond(c.request(), true, ":status", "204")
		c.request()
	}))
	p := NewPool(PoolConfig{Address: address})
	defer p.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		a, err := p.Ask(t.Context(), &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}, true)
		if err != nil {
			t.Error(err)
			return
		}
		if status, _, err := receive(a); status != 204 || err != nil {
			t.Error(status, err)
		}
		a.End()
	})
	testwait.Until(t, "it waits at a connection", func() bool { return p.connections() == 1 && p.wanted() })
	p.CloseIdle()
	close(raise)
	wg.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
