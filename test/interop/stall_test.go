package interop

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// relay passes gRPC streams on, and can stall those that are open: what the
// server sends on them is lost, while HTTP/2 pings pass and nothing is closed.
// New streams pass.
type relay struct {
	address string
	conn    *grpc.ClientConn

	mu sync.Mutex // guards stall
	// stall is closed to stall the streams that began before.
	stall chan struct{}
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: listener.Addr().String(), conn: conn, stall: make(chan struct{})}
	server := grpc.NewServer(grpc.UnknownServiceHandler(r.pass), grpc.ForceServerCodecV2(rawCodec{}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		conn.Close()
		if err := <-served; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return r
}

// silence stalls every stream of now.
func (r *relay) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.stall)
	r.stall = make(chan struct{})
}

func (r *relay) stalled() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stall
}

// pass carries one stream in both directions, until the server ends it or the client is gone.
func (r *relay) pass(_ any, down grpc.ServerStream) error {
	stall := r.stalled()
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "no method")
	}
	md, _ := metadata.FromIncomingContext(down.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(down.Context(), md))
	defer cancel()
	up, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var m message
			if down.RecvMsg(&m) != nil || up.SendMsg(&m) != nil {
				return // the other direction tells why
			}
		}
	}()
	for {
		var m message
		if err := up.RecvMsg(&m); err != nil {
			return err
		}
		select {
		case <-stall:
			continue
		default:
		}
		if err := down.SendMsg(&m); err != nil {
			return err
		}
	}
}

// No client notices by itself that its stream has gone silent. The server asks
// for a sign of life, gets none, and closes the stream: that they notice, and
// come back for what they have missed.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	w := newWorld(t, func(c *controlplane.Config) {
		c.Policy = ack.Policy{ProbeInterval: 2 * time.Second, AckTimeout: 2 * time.Second}
	})
	w.service("echo", one)
	between := startRelay(t, w.address)
	w.clients = startAll(t, between.address)
	loads := make(map[string]*load)
	w.each(t, func(t *testing.T, c client) {
		wantAnswer(t, c, "echo", "one", startTime)
		w.wantFresh(t, c, soon)
		loads[c.name] = startLoad(w.top, c, "echo")
	})
	between.silence()
	w.service("echo", two)
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "answered by two", func() bool { return loads[c.name].answer() == "two" })
		w.wantFresh(t, c, soon)
		n := w.node(t, c)
		if n.Resets == 0 {
			t.Error("no reset is counted")
		}
		if !hasReset(n) {
			t.Errorf("no reset for %s in the history: %+v", "ack_timeout", n.History)
		}
		loads[c.name].wantNoFailure(t)
	})
	if metrics := meshtest.Get(t, w.control.Admin, "/metrics"); !strings.Contains(metrics, `freshmesh_stream_resets_total{reason="ack_timeout"}`) {
		t.Error("no metric of the resets")
	}
}

func hasReset(n ack.Node) bool {
	for _, e := range n.History {
		if e.Event == "reset" && e.Reason == "ack_timeout" {
			return true
		}
	}
	return false
}
