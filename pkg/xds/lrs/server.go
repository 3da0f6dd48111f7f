package lrs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/refresh"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Sink takes reports; refresh.Refresher is one. It must not block.
type Sink interface {
	Submit(refresh.Report)
}

// Config is what a Server works with. Sink must be set.
type Config struct {
	Sink Sink
	// Interval is how often clients are asked to report; 0 means 10 s.
	Interval time.Duration
	// Limits bound one request.
	Limits Limits
	// MaxNodeStreams bounds the open streams of one node id; 0 means 1,000.
	MaxNodeStreams int
	// Logger may be nil: nothing is logged.
	Logger hclog.Logger
	// Done, when closed, ends all streams with UNAVAILABLE; may be nil.
	Done <-chan struct{}
}

// Server is the load reporting service.
type Server struct {
	loadstatsv3.UnimplementedLoadReportingServiceServer
	cfg Config
	log hclog.Logger

	mu      sync.Mutex // guards streams
	streams map[mesh.NodeID]int
}

// How fast one stream may report: a data plane that meets dead endpoints does
// so at once, and may do so for several clusters. A stream that is faster is
// read more slowly, and then gRPC's flow control holds the client back.
const (
	paceBurst    = 20
	paceInterval = 200 * time.Millisecond
)

// New gives a Server, to be registered with
// loadstatsv3.RegisterLoadReportingServiceServer.
func New(cfg Config) *Server {
	if cfg.Interval <= 0 {
		cfg.Interval = 10 * time.Second
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.MaxNodeStreams <= 0 {
		cfg.MaxNodeStreams = 1000
	}
	return &Server{cfg: cfg, log: cfg.Logger.Named("lrs"), streams: map[mesh.NodeID]int{}}
}

type stream = grpc.BidiStreamingServer[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse]

// StreamLoadStats serves one client until it ends the stream, sends what
// cannot be read, or Config.Done is closed.
func (s *Server) StreamLoadStats(stream stream) error {
	var node mesh.NodeID
	requests, failed := receive(stream)
	pace := newPace()
	defer pace.stop()
	defer func() { s.leave(node) }()
	for {
		if !pace.wait(stream.Context(), s.cfg.Done) {
			return s.over(stream.Context())
		}
		select {
		case <-s.cfg.Done:
			return s.over(stream.Context())
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case req := <-requests:
			first := node == ""
			id, reports, err := decode(req, node, s.cfg.Limits)
			if err != nil {
				s.log.Warn("load report refused", "node", node, "err", err)
				return err
			}
			if first {
				if err := s.enter(id); err != nil {
					s.log.Warn("load reports refused", "node", id, "err", err)
					return err
				}
			}
			if node = id; first {
				if err := stream.Send(s.answer()); err != nil {
					return err
				}
				s.log.Debug("load reports begin", "node", node)
			}
			for _, r := range reports {
				s.cfg.Sink.Submit(r)
			}
		}
	}
}

// over is why a stream ends that its client did not end.
func (s *Server) over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, "the server is shutting down")
}

// enter counts a stream of a node, which leave takes back; the error is for one too many.
func (s *Server) enter(node mesh.NodeID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.streams[node]; n >= s.cfg.MaxNodeStreams {
		return status.Errorf(codes.ResourceExhausted, "node %s has %d streams of load reports, the most that it may have (--max-node-streams)", node, n)
	}
	s.streams[node]++
	return nil
}

func (s *Server) leave(node mesh.NodeID) {
	if node == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[node]--; s.streams[node] == 0 {
		delete(s.streams, node)
	}
}

// answer tells the client what to report (load_stats.v3.LoadStatsResponse).
func (s *Server) answer() *loadstatsv3.LoadStatsResponse {
	return &loadstatsv3.LoadStatsResponse{
		SendAllClusters:           true,
		ReportEndpointGranularity: true,
		LoadReportingInterval:     durationpb.New(s.cfg.Interval),
	}
}

// receive gives what the client sends, one request at a time, and then why it
// ended. Its goroutine ends with the stream: gRPC cancels the stream's
// context, which fails Recv, when the handler returns.
func receive(stream stream) (<-chan *loadstatsv3.LoadStatsRequest, <-chan error) {
	requests := make(chan *loadstatsv3.LoadStatsRequest)
	failed := make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				failed <- stream.Context().Err()
				return
			}
		}
	}()
	return requests, failed
}
