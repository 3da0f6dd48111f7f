package bubble

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// bufferBytes is how much one direction of a connection holds.
const bufferBytes = 256 << 10

// Control is a control plane that can be stopped and started again.
type Control struct {
	// Server is the one that runs; nil while none does.
	Server *controlplane.Server

	t        testing.TB
	source   mesh.Source
	edits    []func(*controlplane.Config)
	listener *bufconn.Listener
	stop     context.CancelFunc
	done     chan error
}

// Start runs a control plane with the default deadlines on a source, until Stop
// or the end of the test. Each edit may change its configuration.
func Start(t testing.TB, source mesh.Source, edits ...func(*controlplane.Config)) *Control {
	t.Helper()
	c := &Control{t: t, source: source, edits: edits}
	c.Start()
	t.Cleanup(c.Stop)
	return c
}

// Start runs the next one, after Stop. It knows nothing of what the one before knew.
func (c *Control) Start() {
	config := controlplane.Config{
		Source: c.source, ClusterDomain: "cluster.local", Policy: meshtest.Policy, Build: "test",
		Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(),
	}
	for _, edit := range c.edits {
		edit(&config)
	}
	c.Server = controlplane.New(config)
	c.listener = bufconn.Listen(bufferBytes)
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan error, 1)
	server, listener, done := c.Server, c.listener, c.done
	go func() { done <- server.Run(ctx, listener, bufconn.Listen(0)) }()
	synctest.Wait() // it has its objects and serves
}

// Stop ends it, its streams included, and waits for that. Without one it does nothing.
func (c *Control) Stop() {
	c.t.Helper()
	if c.Server == nil {
		return
	}
	c.stop()
	if err := <-c.done; err != nil {
		c.t.Errorf("control plane: %v", err)
	}
	c.Server = nil
}

// DialContext connects to the one that runs; safe for concurrent use with all
// but Start and Stop, and an error while none runs.
func (c *Control) DialContext(ctx context.Context, _ string) (net.Conn, error) {
	return c.listener.DialContext(ctx)
}

// Link is a connection to the control plane. All its methods are safe for concurrent use.
type Link struct {
	*grpc.ClientConn
	gate *gate
}

// Dial makes a connection for the one that runs now. Close it after use.
func (c *Control) Dial() *Link {
	c.t.Helper()
	g := newGate()
	conn, err := grpc.NewClient("passthrough:///control", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			inner, err := c.DialContext(ctx, address)
			if err != nil {
				return nil, err
			}
			return &gated{Conn: inner, gate: g}, nil
		}))
	if err != nil {
		c.t.Fatal(err)
	}
	return &Link{ClientConn: conn, gate: g}
}

// Stall lets nothing pass in either direction, until Resume or Close.
func (l *Link) Stall() { l.gate.set(true) }

// Resume ends Stall: what waits passes.
func (l *Link) Resume() { l.gate.set(false) }

// Close ends the connection; the control plane sees that.
func (l *Link) Close() error {
	l.gate.set(false)
	return l.ClientConn.Close()
}
