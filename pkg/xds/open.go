package xds

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// serve runs one stream to its end.
func (s *Server) serve(stream grpc.ServerStream, t transport) error {
	sn, request, err := s.open(stream, t)
	if err != nil {
		s.refuse(stream.Context(), err)
		return ended(err)
	}
	reason, err := sn.run(stream, t, request)
	sn.close(reason, err)
	if reason.Silent() {
		s.abandon(sn.connection, sn.node, sn.address)
	}
	s.metrics.count(err)
	return err
}

// open gives a stream's session once its first request has named a node that may have one.
func (s *Server) open(stream grpc.ServerStream, t transport) (*session, ads.Request, error) {
	request, n, err := s.first(t)
	if err != nil {
		return nil, request, err
	}
	sn, err := s.admit(stream, t, n)
	return sn, request, err
}

func (s *Server) admit(stream grpc.ServerStream, t transport, n *corev3.Node) (*session, error) {
	node, err := parseNode(n, s.cfg.MaxNodeBytes)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Ready(); err != nil {
		return nil, refusal(RefusedNotReady, codes.Unavailable, "%s", err)
	}
	var own []mesh.Resource
	if s.cfg.Own != nil {
		if own, err = s.cfg.Own(node); err != nil {
			return nil, refusal(RefusedMalformed, codes.InvalidArgument, "%s", err)
		}
	}
	sn := s.newSession(stream.Context(), node, t, snapshot.NewOwn(own))
	if err := s.register.add(sn, s.cfg.MaxNodeStreams); err != nil {
		sn.reader.Close()
		return nil, err
	}
	sn.connection.add(sn)
	sn.record("connected", t.only, "", "")
	sn.log.Info("stream opened", "client", node.Client, "address", sn.address, "protocol", sn.protocol(), "only", t.only)
	return sn, nil
}

// refuse counts and logs the end of a stream that was never opened.
func (s *Server) refuse(ctx context.Context, err error) {
	s.metrics.count(err)
	if errors.Is(err, errMute) {
		s.metrics.resets.WithLabelValues(string(ads.CloseNoRequest)).Inc()
		s.abandon(connectionOf(ctx), Node{}, addressOf(ctx))
	}
	if _, refused := errors.AsType[*refused](err); refused || errors.Is(err, errMute) {
		s.cfg.Logger.Info("stream refused", "address", addressOf(ctx), "err", status.Convert(err).Message())
	}
}

// addressOf gives the client's address, "" where it has none.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// first waits for a stream's first request, for as long as a node may be silent
// later, or for Shutdown. Nobody knows whose stream it is before.
func (s *Server) first(t transport) (ads.Request, *corev3.Node, error) {
	type message struct {
		request ads.Request
		node    *corev3.Node
		err     error
	}
	arrived := make(chan message, 1)
	go func() { // ends at the latest when the handler has returned
		r, n, err := t.recv()
		arrived <- message{r, n, err}
	}()
	patience := time.NewTimer(s.silence())
	defer patience.Stop()
	select {
	case m := <-arrived:
		return m.request, m.node, m.err
	case <-patience.C:
		return ads.Request{}, nil, errMute
	case <-s.draining:
		return ads.Request{}, nil, errStopping
	}
}

var (
	errStopping = status.Error(codes.Unavailable, "the server is stopping")
	errMute     = status.Errorf(codes.Unavailable, "stream closed: %s", ads.CloseNoRequest)
)

func (s *Server) newSession(ctx context.Context, node Node, t transport, own snapshot.Own) *session {
	sn := &session{
		server: s, node: node, delta: t.delta, only: t.only, log: s.cfg.Logger.With("node", node.ID),
		queries: make(chan func(*session), 1), done: make(chan struct{}),
		connected: time.Now(), warned: make(map[mesh.Type]mesh.Version),
		address: addressOf(ctx), connection: connectionOf(ctx),
	}
	sn.reader = s.cfg.Store.Open(node.View, own)
	sn.core = ads.New(ads.Config{
		Delta:       t.delta,
		Policy:      s.policy(node),
		NoncePrefix: s.instance + "." + strconv.FormatUint(s.streams.Add(1), 36) + ".",
		MaxNames:    s.cfg.MaxNames, MaxBytes: s.cfg.MaxBytes,
	}, sn.reader.View(), sn.connected)
	return sn
}

// policy is the server's, with what is known of the node and its kind.
func (s *Server) policy(node Node) ack.Policy {
	p := s.register.policy(node.ID, s.cfg.Policy)
	p.Prompt = node.Prompt
	return p
}

// ended turns the end of a stream by its client into no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
