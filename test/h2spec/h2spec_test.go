package h2spec

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	h2 "github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	relay "github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// answered is what the server under test has behind it.
func answered(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "Hello, h2spec: there must be some bytes to send.")
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// startGo is Go's own server.
func startGo(t *testing.T) netip.AddrPort {
	t.Helper()
	l := listen(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: http.HandlerFunc(answered), Protocols: &protocols}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// straight sends every request to one pool.
type straight struct{ pool *relay.Pool }

func (s straight) Request(relay.Ticket, *message.Request) (relay.Exchange, relay.Decision) {
	return s, relay.Decision{To: s.pool}
}
func (straight) Sent() *upstream.Error                           { return nil }
func (straight) Response(*message.Response, bool) relay.Decision { return relay.Decision{} }
func (straight) Trailers([]message.Field) relay.Decision         { return relay.Decision{} }
func (straight) Failed(*upstream.Error, bool) relay.Decision     { return relay.Decision{} }
func (straight) Expired() (*upstream.Error, bool)                { return nil, false }
func (straight) Ended(relay.Outcome)                             {}

// startRelay is ours, before an endpoint.
func startRelay(t *testing.T, endpoint netip.AddrPort) netip.AddrPort {
	t.Helper()
	l := listen(t)
	pool := relay.NewPool(relay.PoolConfig{Address: endpoint})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { _ = relay.NewServer(nc, nil, straight{pool}, relay.Config{}).Run(ctx) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
		pool.Close()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// run gives the cases that fail, and how many passed.
func run(at netip.AddrPort) (failed map[string]string, passed int) {
	c := &config.Config{Host: at.Addr().String(), Port: int(at.Port()), Path: "/", Timeout: 3 * time.Second, MaxHeaderLen: 4000, Strict: true}
	failed = map[string]string{}
	for _, g := range []*spec.TestGroup{generic.Spec(), h2.Spec(), hpack.Spec()} {
		g.Test(c)
		passed += g.PassedCount
		collect(g, failed)
	}
	return failed, passed
}

func collect(g *spec.TestGroup, failed map[string]string) {
	for _, tc := range g.Tests {
		if tc.Result != nil && tc.Result.Failed {
			failed[g.ID()+" "+tc.Desc] = tc.Result.Error.Error()
		}
	}
	for _, sub := range g.Groups {
		collect(sub, failed)
	}
}

func TestServer(t *testing.T) {
	theirs, theirPassed := run(startGo(t))
	ours, ourPassed := run(startRelay(t, startGo(t)))
	t.Logf("passed: Go's server %d, the relay %d", theirPassed, ourPassed)
	for name, err := range ours {
		if _, ok := theirs[name]; ok {
			t.Logf("Go's fails too: %s: %s", name, err)
			continue
		}
		t.Errorf("%s: %s", name, err)
	}
	for name := range theirs {
		if _, ok := ours[name]; !ok {
			t.Logf("only Go's fails: %s", name)
		}
	}
	if ourPassed < 100 {
		t.Errorf("only %d cases ran", ourPassed)
	}
}

// TestProgram: the data plane as it is delivered, whichever path serves there.
func TestProgram(t *testing.T) {
	endpoint := startGo(t)
	manifests := meshtest.NewManifests(t)
	manifests.Put(meshtest.Service{Name: "spec", AppProtocol: "kubernetes.io/h2c", Addresses: []string{endpoint.String()}})
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	cluster := interoptest.ClusterName("spec")
	d := interoptest.StartDataplane(t, control.XDS, map[string]string{cluster: "http"})
	theirs, _ := run(startGo(t))
	ours, passed := run(netip.MustParseAddrPort(d.Listens[cluster]))
	t.Logf("passed: %d", passed)
	for name, err := range ours {
		if _, ok := theirs[name]; !ok {
			t.Errorf("%s: %s", name, err)
		}
	}
	if passed < 100 {
		t.Errorf("only %d cases passed", passed)
	}
}
