package xds

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

	// guarded by register.mu
	// replaces: it takes the place of a lost stream.
	replaces bool

	// atomic
	// confirmed is when the client last answered, in Unix nanoseconds; 0 before that.
	confirmed atomic.Int64
}

func (sn *session) protocol() string {
	if sn.delta {
		return "delta"
	}
	return "sotw"
}

func (sn *session) record(event string, t mesh.Type, v mesh.Version, reason string) {
	sn.history.Add(time.Now(), event, t, v, reason)
	sn.emit(event, t, v, reason, nil)
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
	sn.core.Published(sn.reader.View()) // what it asks for is not late because nobody woke this stream for it before
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
	sn.emit(event, r.Type, r.Version, "", r)
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
	text := string(reason)
	switch {
	case reason != "":
		sn.record("reset", "", "", text)
		sn.server.metrics.resets.WithLabelValues(text).Inc()
		sn.log.Warn("stream reset", "reason", reason)
	default:
		if err != nil {
			text = status.Convert(err).Message()
		}
		sn.record("disconnected", "", "", text)
		sn.log.Info("stream closed", "reason", text)
	}
	now := time.Now()
	last := sn.report(now)
	// It must be found among those that left before it is not found among those
	// that are there: who looks at both would miss it. Its core does not change from here on.
	sn.server.departures.add(sn, now)
	sn.server.register.remove(sn, last, reason != "", sn.lostBy(text, reason != "", err, last, now))
	close(sn.done)
	sn.server.stir()
}

// report is the session's part of the audit.
func (sn *session) report(now time.Time) ack.Node {
	sn.core.Published(sn.reader.View())
	sn.lookElsewhere()
	acks, view := sn.core.Acks(), sn.core.View()
	n := ack.Node{
		ID: sn.node.ID, Pod: sn.node.Pod, Client: sn.node.Client, Address: sn.address, Protocol: sn.protocol(),
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
