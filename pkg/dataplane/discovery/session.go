package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// maxRequests is how many requests may wait to be sent. Names are gathered into
// few requests, so more than this waits only where nothing passes.
const maxRequests = 256

// event is what the goroutines of a session, and lookups, tell the owner.
type event struct {
	// session is nil for a lookup.
	session  *session
	opened   bool
	response *discoveryv3.DeltaDiscoveryResponse

	host  string
	addrs []netip.Addr

	// err is why the session ended, or the lookup failed.
	err error
}

// session is one connection to one server, with its ADS stream and its load
// reports. It is never reused: another stream gets another connection.
type session struct {
	server string
	// patience bounds the opening of the connection and the stream.
	patience time.Duration
	requests chan *discoveryv3.DeltaDiscoveryRequest
	report   chan struct{}
	cancel   context.CancelFunc
	// opened is true once the stream was open, good once a message came; owned by the owner.
	opened, good bool
}

func newSession(server string, patience time.Duration) *session {
	return &session{
		server:   server,
		patience: patience,
		requests: make(chan *discoveryv3.DeltaDiscoveryRequest, maxRequests),
		report:   make(chan struct{}, 1),
	}
}

func (s *session) reportNow() {
	select {
	case s.report <- struct{}{}:
	default:
	}
}

// start runs the session until it fails, is cancelled or ctx ends; its end is its last event.
func (s *session) start(ctx context.Context, o *owner) {
	own, cancel := context.WithCancel(ctx)
	s.cancel = cancel
	o.wg.Go(func() {
		defer cancel()
		err := s.run(own, o.Client)
		o.tell(ctx, event{session: s, err: err})
	})
}

func (s *session) run(ctx context.Context, c *Client) error {
	conn, err := s.dial(c.config.DialOptions)
	if err != nil {
		return err
	}
	defer conn.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.openStream(ctx, cancel, conn)
	if err != nil {
		return err
	}
	if !c.tell(ctx, event{session: s, opened: true}) {
		return ctx.Err()
	}
	wg.Go(func() { s.sendAll(ctx, stream) })
	wg.Go(func() { c.reportLoads(ctx, conn, s.report) })
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if !c.tell(ctx, event{session: s, response: r}) {
			return ctx.Err()
		}
	}
}

// tell gives the owner an event; false when ctx ended first.
func (c *Client) tell(ctx context.Context, e event) bool {
	select {
	case c.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *session) dial(more []grpc.DialOption) (*grpc.ClientConn, error) {
	target := s.server
	if !strings.Contains(target, "://") && !strings.HasPrefix(target, "unix:") {
		target = "passthrough:///" + target // host names are looked up anew for each connection
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
	}, more...)
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", s.server, err)
	}
	return conn, nil
}

// openStream fails at once where the server cannot be reached, and after its patience
// where nothing happens. Its error does not name the server.
func (s *session) openStream(ctx context.Context, cancel context.CancelFunc, conn *grpc.ClientConn) (
	grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse], error,
) {
	limit := time.AfterFunc(s.patience, cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	inTime := limit.Stop()
	if err != nil {
		if !inTime {
			return nil, fmt.Errorf("no connection within %v", s.patience)
		}
		return nil, err
	}
	if !inTime {
		return nil, fmt.Errorf("no connection within %v", s.patience)
	}
	return stream, nil
}

// sendAll sends until the stream fails, which Recv then reports.
func (s *session) sendAll(ctx context.Context,
	stream grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse],
) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.requests:
			if stream.Send(r) != nil {
				return
			}
		}
	}
}
