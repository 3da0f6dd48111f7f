package xds

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// session is one stream being served. Its owner is the handler's goroutine.
type session struct {
	// set once
	server  *Server
	node    Node
	address string
	// connection is what the stream came on; others may be on it.
	connection *connection
	log        hclog.Logger
	delta      bool
	// only is the type that the stream is bound to; "" for an aggregated one.
	only    mesh.Type
	queries chan func(*session)
	done    chan struct{}

	// owned by the handler
	core      *ads.Stream
	reader    *snapshot.Reader
	connected time.Time
	history   ack.History
	// deliveries remembers what was sent longer than history does.
	deliveries ack.Deliveries
	// warned: NACKs are logged once a type and version.
	warned map[mesh.Type]mesh.Version

	// atomic
	// confirmed is when the client last answered, in Unix nanoseconds; 0 before that.
	confirmed atomic.Int64
}

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

func (sn *session) protocol() string {
	if sn.delta {
		return "delta"
	}
	return "sotw"
}

func (sn *session) record(event string, t mesh.Type, v mesh.Version, reason string) {
	sn.history.Add(time.Now(), event, t, v, reason)
	sn.tell(event, t, v, reason, nil)
}

// run owns the core until the stream ends. The reason is "" unless the server ended it.
func (sn *session) run(stream grpc.ServerStream, t transport, request ads.Request) (ads.CloseReason, error) {
	requests, received := make(chan ads.Request), make(chan error, 1)
	responses, sent := make(chan *ads.Response, 1), make(chan error, 1)
	go receive(stream.Context(), t, requests, received)
	go send(stream, sn.delta, responses, sent)
	defer close(responses)

	timer := time.NewTimer(0)
	defer timer.Stop()
	if err := sn.request(request); err != nil {
		return "", err
	}
	for {
		now := time.Now()
		sn.lookElsewhere()
		if reason := sn.core.Tick(now); reason != "" {
			return reason, sn.closed(reason)
		}
		if r := sn.core.Next(now); r != nil {
			responses <- r // never blocks: the sender has none
			sn.noteSent(r, now)
		}
		timer.Reset(time.Until(sn.core.Deadline(now)))
		select {
		case r := <-requests:
			if err := sn.request(r); err != nil {
				return "", err
			}
		case err := <-received:
			return "", ended(err)
		case err := <-sent:
			if err != nil {
				return "", ended(err)
			}
			sn.core.Sent()
		case <-sn.reader.Woken():
			sn.core.Published(sn.reader.View())
		case f := <-sn.queries:
			f(sn)
		case <-timer.C:
			// Also for those who are not woken: the log must not outrun them.
			sn.core.Published(sn.reader.View())
		case <-sn.server.draining:
			return "", errStopping
		}
	}
}

// closed is what the client is told of the end that the server makes.
func (sn *session) closed(reason ads.CloseReason) error {
	if reason == ads.CloseTooManyNames {
		return refusal(RefusedNames, codes.ResourceExhausted,
			"stream closed: %s: more than %d names, or 64 types (--max-subscriptions)", reason, sn.server.cfg.MaxNames)
	}
	return status.Errorf(codes.Unavailable, "stream closed: %s", reason)
}

func receive(ctx context.Context, t transport, requests chan<- ads.Request, received chan<- error) {
	for {
		r, _, err := t.recv()
		if err != nil {
			received <- err
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			received <- ctx.Err() // the owner may be there still, and hears of it only here
			return
		}
	}
}

func send(stream grpc.ServerStream, delta bool, responses <-chan *ads.Response, sent chan<- error) {
	for r := range responses {
		sent <- stream.SendMsg(encode(r, delta)) // room for one, and the owner hands out one at a time
	}
}

// request hands a request to the core, and what came of it to the log and the metrics.
func (sn *session) request(r ads.Request) error {
	if err := check(r); err != nil {
		return err
	}
	defer sn.server.stir()
	now := time.Now()
	out := sn.core.Request(r, now)
	for _, c := range sn.core.TakeInterest() {
		sn.apply(c)
	}
	sn.core.Published(sn.reader.View())
	if out.Answer == ads.Acked || out.Answer == ads.Nacked {
		sn.confirmed.Store(now.UnixNano())
	}
	switch out.Answer {
	case ads.Acked:
		sn.record("acked", r.Type, out.Version, "")
		sn.deliveries.Answered(r.Type, out.SentAt, now, false, "")
		sn.server.metrics.acked(now, out.Changes)
	case ads.Nacked:
		sn.record("rejected", r.Type, out.Version, r.Message)
		sn.deliveries.Answered(r.Type, out.SentAt, now, true, r.Message)
		sn.server.metrics.nacks.WithLabelValues(typeLabel(r.Type)).Inc()
		if sn.warned[r.Type] != out.Version {
			sn.warned[r.Type] = out.Version
			sn.log.Warn("rejected", "type", r.Type.Short(), "version", out.Version, "err", r.Message)
		}
	case ads.AnswerNone, ads.AnswerOld:
	}
	return nil
}

// lookElsewhere notes what a node whose streams have one type each confirmed on
// the others: a client that warms clusters withholds an ACK on this one only.
func (sn *session) lookElsewhere() {
	if ack.Withholds(sn.only) {
		sn.core.ConfirmedElsewhere(sn.server.register.confirmed(sn))
	}
}

func (sn *session) apply(c ads.InterestChange) {
	switch {
	case c.All:
		sn.reader.SubscribeAll(c.Type, c.On)
	case c.On:
		sn.reader.Subscribe(c.Type, c.Name)
	default:
		sn.reader.Unsubscribe(c.Type, c.Name)
	}
}

func (sn *session) noteSent(r *ads.Response, now time.Time) {
	event := "sent"
	if r.Probe {
		event = "probed"
	} else {
		sn.deliveries.Sent(r.Type, r.Generation, now, r.Carried)
	}
	sn.history.Add(now, event, r.Type, r.Version, "")
	sn.tell(event, r.Type, r.Version, "", r)
	sn.server.metrics.responses.WithLabelValues(typeLabel(r.Type)).Inc()
	if sn.log.IsDebug() {
		sn.log.Debug("response sent", "type", r.Type.Short(), "version", r.Version, "nonce", r.Nonce,
			"resources", len(r.Resources), "removed", len(r.Removed), "probe", r.Probe)
	}
}

// close takes the session out of the store and the register.
func (sn *session) close(reason ads.CloseReason, err error) {
	acks := sn.core.Acks()
	for _, t := range acks.Types() {
		tr := acks.Type(t)
		if tr.Wildcard() {
			sn.reader.SubscribeAll(t, false)
		}
		sn.reader.Unsubscribe(t, tr.Names()...)
	}
	sn.reader.Close()
	sn.connection.remove(sn)
	switch {
	case reason != "":
		sn.record("reset", "", "", string(reason))
		sn.server.metrics.resets.WithLabelValues(string(reason)).Inc()
		sn.log.Warn("stream reset", "reason", reason)
	default:
		text := ""
		if err != nil {
			text = status.Convert(err).Message()
		}
		sn.record("disconnected", "", "", text)
		sn.log.Info("stream closed", "reason", text)
	}
	last := sn.report(time.Now())
	// It must be found among those that left before it is not found among those
	// that are there: who looks at both would miss it. Its core does not change from here on.
	sn.server.departures.add(sn, time.Now())
	sn.server.register.remove(sn, last, reason != "")
	close(sn.done)
	sn.server.stir()
}

// report is the session's part of the audit.
func (sn *session) report(now time.Time) ack.Node {
	sn.core.Published(sn.reader.View())
	sn.lookElsewhere()
	acks, view := sn.core.Acks(), sn.core.View()
	n := ack.Node{
		ID: sn.node.ID, Client: sn.node.Client, Address: sn.address, Protocol: sn.protocol(),
		ConnectedAt: sn.connected, Streams: 1, Active: sn.node.Active, History: sn.history.Events(),
	}
	if !acks.ConfirmedAt.IsZero() {
		at := acks.ConfirmedAt
		n.ConfirmedAt = &at
	}
	for _, t := range acks.Types() {
		state := acks.State(t, now, view)
		state.BehindResources = acks.Behind(t, view)
		n.Types = append(n.Types, state)
	}
	n.State, n.Reason = ack.Judge(n.Types)
	return n
}

// ended turns the end of a stream by its client into no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
