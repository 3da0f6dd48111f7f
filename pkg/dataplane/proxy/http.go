package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Discovery is what the proxy asks of discovery.
type Discovery interface {
	// Cluster waits for a cluster until ctx ends; see package discovery for its errors.
	Cluster(ctx context.Context, name string) (*discovery.Cluster, error)
}

// Config is what the handlers share.
type Config struct {
	Discovery Discovery
	Endpoints *endpoints.Set
	Names     Names
	Metrics   *Metrics
	Tracker   *Tracker
	Logger    hclog.Logger
	// AccessLog may be nil.
	AccessLog *AccessLog
	// DiscoveryTimeout bounds the wait for an unknown cluster; 0 is 3 s.
	DiscoveryTimeout time.Duration
	// MaxActive is how many requests may be in flight; those over it are shed with the reason Overload; 0 for no limit.
	MaxActive int
	// MaxRequestBytes bounds the body of a request, a stream's too; 0 for no limit.
	MaxRequestBytes int64
	// Limits may be nil.
	Limits *Limits
	// TCPIdle ends an opaque connection on which nothing moves; 0 is 1 h.
	TCPIdle time.Duration
	// MaxConnectionAge is about how old a client's HTTP connection gets before it is told to go, and
	// MaxConnectionAgeGrace how long what is on it may then take; an age of 0 is no limit.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
}

func (c Config) discoveryTimeout() time.Duration {
	if c.DiscoveryTimeout <= 0 {
		return 3 * time.Second
	}
	return c.DiscoveryTimeout
}

// resolve gives the cluster of that name, asking discovery. Its error is an *upstream.Error.
func (c Config) resolve(ctx context.Context, name string) (*endpoints.Cluster, error) {
	bounded, cancel := context.WithTimeout(ctx, c.discoveryTimeout())
	defer cancel()
	dc, err := c.Discovery.Cluster(bounded, name)
	if err == nil {
		if found := c.Endpoints.Cluster(name); found != nil {
			return found, nil
		}
		// It was removed at this very moment.
		err = fmt.Errorf("cluster %s: %w", dc.Name, discovery.ErrUnknownService)
	}
	reason := upstream.DiscoveryPending
	switch {
	case errors.Is(err, discovery.ErrUnknownService):
		reason = upstream.NoSuchService
	case errors.Is(err, discovery.ErrDiscoveryLimit):
		reason = upstream.DiscoveryLimit
	case errors.Is(err, discovery.ErrNeverConnected):
		reason = upstream.NeverReached
	case ctx.Err() != nil:
		reason = upstream.ContextReason(ctx)
	}
	return nil, &upstream.Error{Reason: reason, Unsent: true, Unanswered: true, Err: err}
}

// HTTP is the handler of an HTTP listener.
type HTTP struct {
	Config
	// Bound is the cluster of every request, whatever its authority; "" goes by authority.
	Bound string
}

// ServeHTTP relays one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	active := h.Tracker.begin()
	defer h.Tracker.end()
	x := &exchange{HTTP: h, w: w, r: r, conn: connOf(r.Context()), began: time.Now(), label: unknownCluster}
	if x.conn != nil {
		x.conn.begin()
		defer x.conn.done()
	}
	defer x.finish()
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http's server reads much of the body before the first byte of a response.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if d, ok := grpcTimeout(r.Header); ok && isGRPC(r.Header) {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	if t := h.Limits.writer(w); t != nil {
		defer t.timer.Stop()
		x.w, x.timed = t, t
	}
	err := x.admit(active)
	if err == nil {
		err = x.serve(ctx)
	}
	if err != nil {
		x.fail(err)
	}
}

// admit refuses what is over the proxy's own limits.
func (x *exchange) admit(active int64) error {
	h, e := x.HTTP, x.Limits.judge(x.r)
	switch {
	case e != nil:
		// Its connection costs too.
		x.last = true
		return e
	case h.MaxActive > 0 && active > int64(h.MaxActive):
		return &upstream.Error{
			Reason: upstream.Overload, Unsent: true, Unanswered: true,
			Err: fmt.Errorf("%d requests are in flight in this proxy, which is its limit", h.MaxActive),
		}
	case h.MaxRequestBytes > 0 && x.r.ContentLength > h.MaxRequestBytes:
		return tooLarge(h.MaxRequestBytes)
	}
	return nil
}

func tooLarge(limit int64) *upstream.Error {
	return &upstream.Error{Reason: upstream.BodyTooLarge, Unanswered: true, Err: fmt.Errorf("the request's body is longer than %d bytes", limit)}
}

// exchange is one request on its way.
type exchange struct {
	*HTTP
	w http.ResponseWriter
	r *http.Request
	// conn is the client's connection; nil where Serve did not accept it.
	conn  *conn
	began time.Time
	// timed is w where the client has only so much time to take the response; nil without that.
	timed *timedWriter
	// last: there is to be no other request on an HTTP/1.1 connection after this one.
	last bool

	// label, status and reason are for the metrics, with what follows for the access log.
	label  string
	status int
	reason upstream.Reason
	// err is the failure of ours; nil for none.
	err *upstream.Error
	// received and sent are bytes, but for those that body counts.
	received, sent int64
	firstByte      time.Duration

	// name is that of the cluster asked for; cluster is nil until it is found.
	name    string
	cluster *endpoints.Cluster
	// cancel ends the request for the cluster's own reasons; nil where it has none.
	cancel context.CancelCauseFunc
	// over ends what outlives the request's context, which ends with the client's writing side.
	over context.Context //nolint:containedctx // the exchange is what it belongs to
	// endTry ends the context of the attempt that was answered; nil where it has none of its own.
	endTry  func()
	body    *body
	interim interim
	// attempts are for the access log.
	attempts []attempt
}

func (x *exchange) serve(ctx context.Context) error {
	name, err := x.target()
	if err != nil {
		return err
	}
	x.name = name
	cluster, err := x.resolve(ctx, name)
	if err != nil {
		return err
	}
	x.cluster = cluster
	if x.label == unknownCluster {
		x.label = name
	}
	if d := cluster.Config().Timeout; d > 0 {
		bounded, cancel := context.WithTimeout(ctx, d-time.Since(x.began))
		defer cancel()
		ctx = bounded
	}
	x.over = context.WithoutCancel(ctx)
	if x.conn != nil {
		x.over = x.conn.ctx
	}
	if cluster.ClosesEstablished() {
		over, end := context.WithCancelCause(x.over)
		during, cancel := context.WithCancelCause(ctx)
		ctx, x.over = during, over
		x.cancel = func(err error) { cancel(err); end(err) }
		defer x.cancel(nil)
	}
	if x.r.Method == http.MethodConnect {
		return x.connect(ctx)
	}
	return x.relay(ctx)
}

// target is the name of the cluster that the request is for: a captured
// connection goes where it was going, whatever the authority says.
func (x *exchange) target() (string, error) {
	switch {
	case x.conn != nil && x.conn.to != nil:
		to := x.conn.to
		x.label, x.name = to.label, to.name
		if to.refused != nil {
			// What holds for the connection may not hold for the next one.
			x.conn.leave()
		}
		return to.name, to.refused
	case x.Bound != "":
		return x.Bound, nil
	}
	return x.Names.Cluster(x.r.Host)
}

// fail answers with an error of ours.
func (x *exchange) fail(err error) {
	e := upstream.AsError(err)
	x.failed(e)
	x.interim.stop()
	x.farewell(x.last || x.pinned(e) || x.unread())
	x.status = respond(x.w, x.r, e)
}

// farewell makes an HTTP/1.1 response the last of its connection where that is
// leaving, or where the client would meet the same endpoint again: HTTP/2 hears of it by GOAWAY.
func (x *exchange) farewell(pinned bool) {
	if x.r.ProtoMajor == 1 && (pinned || x.conn != nil && x.conn.told()) {
		x.w.Header().Set("Connection", "close")
	}
}

// unread tells whether the client may still send some of its body when the
// answer's header is written. Its connection must end then (RFC 9112 section
// 9.3): net/http would read the rest, take its end for that of a body that a
// handler has read (EnableFullDuplex), and break under the next request.
func (x *exchange) unread() bool {
	return x.r.ContentLength != 0 && x.r.Body != nil && x.r.Body != http.NoBody && (x.body == nil || !x.body.complete())
}

// pinned tells whether a client that named an address, and no service, was
// told that there is nothing at it: it should ask anew where to go.
func (x *exchange) pinned(e *upstream.Error) bool {
	gone := e.Reason == upstream.NoSuchService || e.Reason == upstream.NoEndpoints || e.Reason == upstream.EndpointRemoved
	_, err := netip.ParseAddrPort(x.name)
	return gone && err == nil
}

// abort ends the client's stream once a response has begun. A gRPC call gets
// its status in the trailers; anything else can only break off, and then abort does not return.
func (x *exchange) abort(e *upstream.Error) {
	x.failed(e)
	if isGRPC(x.r.Header) && x.r.ProtoMajor == 2 && e.Reason != upstream.ClientGone {
		h := x.w.Header()
		h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(e.Reason.GRPC())))
		h.Set(http.TrailerPrefix+"Grpc-Message", e.GRPCMessage())
		h.Set(http.TrailerPrefix+"Proxy-Status", e.ProxyStatus())
		return
	}
	panic(http.ErrAbortHandler)
}

// failed notes e for metrics and logs.
func (x *exchange) failed(e *upstream.Error) {
	x.reason, x.err = e.Reason, e
	if x.Logger.IsDebug() {
		x.Logger.Debug("request failed", "cluster", x.label, "layer", e.Reason.Layer(), "reason", e.Reason, "endpoint", e.NextHop, "err", e.Err)
	}
}

func (x *exchange) finish() {
	x.interim.stop()
	reason := x.reason
	if reason == "" {
		reason = upstream.None
	}
	x.Limits.ended(reason)
	took := time.Since(x.began)
	x.Metrics.ended(x.label, max(x.status, 100), reason, took)
	if x.AccessLog != nil {
		x.AccessLog.add(x.entry(reason, took))
	}
}

// clientHash is the hash of the client's address, for affinity.
func clientHash(remote string) uint64 {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	return xxhash.Sum64String(host)
}
