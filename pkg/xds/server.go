package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Config of a Server. Store, Logger and Registerer are required.
type Config struct {
	Store  *snapshot.Store
	Policy ack.Policy
	// Ready gives nil once streams may be served, and until then why not.
	Ready func() error
	// Own gives the resources that belong to one node alone, or an error that
	// refuses the node. nil: none.
	Own func(Node) ([]mesh.Resource, error)
	// MaxNames bounds the names that one stream subscribes to; 0 means 100,000.
	MaxNames int
	// MaxBytes bounds a response where it may be split; 0 means 3 MiB, since
	// gRPC clients refuse messages over 4 MiB by default.
	MaxBytes int
	// MaxNodeStreams bounds the open streams of one node; 0 means 1,000.
	MaxNodeStreams int
	// MaxNodeBytes bounds the metadata of a node message; 0 means 64 KiB.
	MaxNodeBytes int
	Logger       hclog.Logger
	Registerer   prometheus.Registerer
	// Propagation is made by Propagation and registered by whoever made it; its
	// stages send, ack and total are observed here.
	Propagation *prometheus.HistogramVec
	// Events is told what happens to each node. It is called by the owners of
	// streams and must not block; nil: nobody is told.
	Events func(Event)
}

// Server serves the discovery services, aggregated and of one type each,
// state-of-the-world and incremental, and knows every node.
type Server struct {
	// set once
	cfg      Config
	metrics  *metrics
	register *register
	instance string
	draining chan struct{}
	drain    sync.Once
	// stirred holds a token while there is something new to look at (drain.go).
	stirred    chan struct{}
	departures departures
	// atomic
	streams atomic.Uint64
}

// New makes a Server.
func New(c Config) *Server {
	c.MaxNames = cmp.Or(c.MaxNames, 100_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 3<<20)
	c.MaxNodeStreams = cmp.Or(c.MaxNodeStreams, 1000)
	c.MaxNodeBytes = cmp.Or(c.MaxNodeBytes, 64<<10)
	s := &Server{
		cfg: c, register: newRegister(), instance: rand.Text()[:8],
		draining: make(chan struct{}), stirred: make(chan struct{}, 1),
		departures: departures{limit: maxDepartedBytes},
	}
	s.metrics = newMetrics(c.Registerer, c.Propagation, s)
	return s
}

// ServerOptions are the options that a grpc.Server needs to carry a Server.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(newCodec()), grpc.Creds(Credentials(insecure.NewCredentials()))}
}

// Shutdown ends every stream with UNAVAILABLE, so that the clients go elsewhere.
func (s *Server) Shutdown() { s.drain.Do(func() { close(s.draining) }) }

// Instance names this process: no two runs have the same.
func (s *Server) Instance() string { return s.instance }

// Nodes gives the audit's view of every node, or of one if id is not "". Nodes
// whose owner does not answer before ctx ends are left out, and ctx's error given.
func (s *Server) Nodes(ctx context.Context, id mesh.NodeID) ([]ack.Node, error) {
	return s.register.nodes(ctx, id)
}

// Holds tells whether a node is known to hold the current form of a resource.
// known is false when the node has no stream that subscribes to it.
// err is ctx's when a stream's owner did not answer in time.
func (s *Server) Holds(ctx context.Context, id mesh.NodeID, t mesh.Type, name string) (current, known bool, err error) {
	current = true
	err = s.register.each(ctx, id, func(sn *session) {
		sn.core.Published(sn.reader.View())
		if subscribed, ok := sn.core.Acks().HoldsCurrent(t, mesh.Intern(name), sn.core.View()); subscribed {
			known, current = true, current && ok
		}
	})
	return current, known, err
}

// Resend sends a resource again to every stream of a node that subscribes to
// it, before any answer to what is in flight. It gives the number of streams
// that do, and ctx's error when an owner did not answer in time.
func (s *Server) Resend(ctx context.Context, id mesh.NodeID, t mesh.Type, name string) (int, error) {
	n := 0
	err := s.register.each(ctx, id, func(sn *session) {
		sn.core.Published(sn.reader.View())
		if sn.core.Resend(t, mesh.Intern(name), time.Now()) {
			n++
		}
	})
	return n, err
}

// Resync sends again everything that is subscribed, or only what is called
// name, of any type, to one node, or to all for the id "". It gives the number
// of nodes that something is sent to, and whether any has a stream here at all.
func (s *Server) Resync(ctx context.Context, id mesh.NodeID, name string) (n int, known bool, err error) {
	sent := make(map[mesh.NodeID]bool)
	err = s.register.each(ctx, id, func(sn *session) {
		known = true
		sn.core.Published(sn.reader.View())
		if sn.core.ResendAll(name, time.Now()) {
			sent[sn.node.ID] = true
		}
	})
	return len(sent), known, err
}

// ViewOf gives what a node should see, and false for a node without a stream here.
func (s *Server) ViewOf(ctx context.Context, id mesh.NodeID) (view snapshot.View, known bool, err error) {
	err = s.register.each(ctx, id, func(sn *session) { view, known = sn.reader.View(), true })
	return view, known, err
}
