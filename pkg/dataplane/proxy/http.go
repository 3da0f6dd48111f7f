package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
	// DiscoveryTimeout bounds the wait for an unknown cluster; 0 is 3 s.
	DiscoveryTimeout time.Duration
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
	// Label is the metric label in place of the cluster's name; "" for the name.
	Label string
}

// ServeHTTP relays one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Tracker.begin()
	defer h.Tracker.end()
	x := &exchange{HTTP: h, w: w, r: r, began: time.Now(), label: unknownCluster}
	defer x.finish()
	if h.Tracker.Draining() {
		// HTTP/1.1 closes after this response; net/http turns it into a GOAWAY for HTTP/2.
		w.Header().Set("Connection", "close")
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http's server reads much of the body before the first byte of a response.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if d, ok := grpcTimeout(r.Header); ok && isGRPC(r.Header) {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	if err := x.serve(ctx); err != nil {
		x.fail(err)
	}
}

// exchange is one request on its way.
type exchange struct {
	*HTTP
	w     http.ResponseWriter
	r     *http.Request
	began time.Time

	// label, status and reason are for the metrics.
	label  string
	status int
	reason upstream.Reason

	cluster *endpoints.Cluster
	// cancel ends the request for the cluster's own reasons, and resets what
	// resetWith was given; nil where it has none.
	cancel    context.CancelCauseFunc
	resetWith func(io.Closer) (undo func() bool)
	body      *body
	interim   interim
}

func (x *exchange) serve(ctx context.Context) error {
	name := x.Bound
	if name == "" {
		var err error
		if name, err = x.Names.Cluster(x.r.Host); err != nil {
			return err
		}
	}
	cluster, err := x.resolve(ctx, name)
	if err != nil {
		return err
	}
	x.cluster, x.label = cluster, cmp.Or(x.Label, name)
	if cluster.ClosesEstablished() {
		// A tunnel outlives the request's context, which ends with the client's writing side.
		over, end := context.WithCancelCause(context.WithoutCancel(ctx))
		during, cancel := context.WithCancelCause(ctx)
		ctx = during
		x.cancel = func(err error) { cancel(err); end(err) }
		x.resetWith = func(c io.Closer) func() bool { return context.AfterFunc(over, func() { reset(c) }) }
		defer x.cancel(nil)
	}
	if x.r.Method == http.MethodConnect {
		return x.connect(ctx)
	}
	return x.relay(ctx)
}

// fail answers with an error of ours.
func (x *exchange) fail(err error) {
	e := asError(err)
	x.reason = e.Reason
	x.interim.stop()
	x.status = respond(x.w, x.r, e)
	if x.Logger.IsDebug() {
		x.Logger.Debug("request failed", "cluster", x.label, "reason", e.Reason, "endpoint", e.NextHop, "err", e.Err)
	}
}

// abort ends the client's stream abnormally, which is all that can be said
// once a response has begun. It does not return.
func (x *exchange) abort(reason upstream.Reason) {
	x.reason = reason
	panic(http.ErrAbortHandler)
}

func (x *exchange) finish() {
	x.interim.stop()
	reason := x.reason
	if reason == "" {
		reason = upstream.None
	}
	x.Metrics.ended(x.label, max(x.status, 100), reason, time.Since(x.began))
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
