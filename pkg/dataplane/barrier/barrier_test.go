package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/freshmesh/freshmesh/pkg/dataplane/barrier"
	"github.com/freshmesh/freshmesh/pkg/drain/drainv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane is a control plane that says what the test wants.
type plane struct {
	drainv1.UnimplementedDrainServiceServer
	answer func(n int32, r *drainv1.DrainRequest) (*drainv1.DrainResponse, error)
	asked  atomic.Int32
}

func (p *plane) Drain(_ context.Context, r *drainv1.DrainRequest) (*drainv1.DrainResponse, error) {
	return p.answer(p.asked.Add(1), r)
}

// start serves on an address of the loopback network, "127.0.0.2:0" for one.
func (p *plane) start(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	drainv1.RegisterDrainServiceServer(s, p)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func yes(_ int32, r *drainv1.DrainRequest) (*drainv1.DrainResponse, error) {
	if r.GetNamespace() != "default" || r.GetPod() != "a.b" {
		return nil, status.Error(codes.InvalidArgument, "another pod")
	}
	return &drainv1.DrainResponse{Drained: true, Instance: "yes"}, nil
}

func no(int32, *drainv1.DrainRequest) (*drainv1.DrainResponse, error) {
	return &drainv1.DrainResponse{Instance: "no", Waits: []*drainv1.Wait{{
		Reason: "stale", Node: "n", Cluster: "echo", Endpoint: "10.0.0.1:80", Since: timestamppb.New(time.Unix(100, 0)), Detail: "d",
	}}}, nil
}

func ask(t *testing.T, c barrier.Config, timeout time.Duration) barrier.Answer {
	t.Helper()
	c.NodeID = "a.b.default"
	answer, err := barrier.New(c).Ask(t.Context(), timeout)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestAllMustSayYes: every address of every name is asked.
func TestAllMustSayYes(t *testing.T) {
	good := (&plane{answer: yes}).start(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(good)
	if err != nil {
		t.Fatal(err)
	}
	(&plane{answer: no}).start(t, "127.0.0.2:"+port)
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		all := map[string][]string{"good": {"127.0.0.1", "127.0.0.1"}, "both": {"127.0.0.1", "127.0.0.2"}, "away": {"127.0.0.1", "127.0.0.3"}}[host]
		if all == nil {
			return nil, errors.New("no such host")
		}
		var out []netip.Addr
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out, nil
	}
	for name, want := range map[string]bool{"good": true, "both": false, "away": false, "nowhere": false} {
		a := ask(t, barrier.Config{Servers: []string{good, name + ":" + port}, Lookup: lookup}, 0)
		if a.Drained != want || a.Pod != "default/a.b" {
			t.Errorf("%s: %+v", name, a)
		}
		text := fmt.Sprintf("%+v", a)
		if name == "both" && !strings.Contains(text, "Reason:stale Node:n Cluster:echo Endpoint:10.0.0.1:80") || name == "nowhere" && !strings.Contains(text, "no such host") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestAsksAgain: a control plane that restarts, or says no, is asked until the time is over.
func TestAsksAgain(t *testing.T) {
	p := &plane{answer: func(n int32, r *drainv1.DrainRequest) (*drainv1.DrainResponse, error) {
		switch n {
		case 1:
			return nil, status.Error(codes.Unavailable, "starting")
		case 2:
			return no(n, r)
		}
		return yes(n, r)
	}}
	if a := ask(t, barrier.Config{Servers: []string{p.start(t, "127.0.0.1:0")}}, time.Minute); !a.Drained || p.asked.Load() != 3 {
		t.Errorf("after %d questions: %+v", p.asked.Load(), a)
	}
}

func TestWhichPod(t *testing.T) {
	for _, c := range []barrier.Config{{NodeID: "proxy-1", Namespace: "default"}, {NodeID: ".default"}, {}} {
		if _, err := barrier.New(c).Ask(t.Context(), 0); !errors.Is(err, barrier.ErrNoPod) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	p := (&plane{answer: yes}).start(t, "127.0.0.1:0")
	a, err := barrier.New(barrier.Config{Servers: []string{p}, NodeID: "x", Namespace: "default", Pod: "a.b"}).Ask(t.Context(), 0)
	if err != nil || !a.Drained {
		t.Errorf("%+v, %v", a, err)
	}
}
