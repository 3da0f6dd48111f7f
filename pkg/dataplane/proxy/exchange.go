package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// exchange is one request on its way: what is decided of it, whatever it came in.
//
//	begin ──▶ locate ──▶ proceed ── connect, or relay ──▶ answer, or switchProtocols ──▶ end
//	  └─────────┴───────────┴──── an error of ours: fail ─────────────────────────────────▲
//
// run goes this way in the request's goroutine, over a carrier. A stream goes it by events, and calls the same pieces.
type exchange struct {
	*HTTP
	via carrier
	head
	// conn is the client's connection.
	conn  *life
	began time.Time
	// last: there is to be no other request on an HTTP/1.1 connection after this one.
	last bool

	// label, status and reason are for the metrics, with what follows for the access log.
	label  string
	status int
	reason upstream.Reason
	// err is the failure of ours; nil for none.
	err *upstream.Error
	// received and sent are the bytes of a tunnel.
	received, sent int64
	firstByte      time.Duration

	// name is that of the cluster asked for; cluster is nil until it is found.
	name    string
	cluster *endpoints.Cluster
	// cancel ends the request for the cluster's own reasons; nil where it has none.
	cancel context.CancelCauseFunc
	// over ends a tunnel, which outlives the request's context, as that ends with the client's writing side.
	over  context.Context //nolint:containedctx // the exchange is what it belongs to
	tries attempts
	// attemptLog is for the access log.
	attemptLog []attemptEntry
	// memo is what the connection's requests have in common; nil where they come at once.
	memo *memo
}

// memo is what the last request on a connection had, and the next one most likely has too.
type memo struct {
	// authority stands for the cluster name.
	authority, name string
	series          series
}

// prepare makes x ready for a request; it keeps memory of one before.
func (x *exchange) prepare(h *HTTP, via carrier, c *life) {
	memo, tried, sent := x.memo, x.tries.tried[:0], x.tries.sent[:0]
	// Made in place: a whole one on the stack would be most of what the goroutine of a connection needs.
	*x = exchange{}
	x.HTTP, x.via, x.conn, x.began, x.label, x.memo = h, via, c, time.Now(), unknownCluster, memo
	x.tries.tried, x.tries.sent = tried, sent
}

// run serves the request, and waits where it must.
func (x *exchange) run() {
	defer x.end()
	err := x.begin()
	if err == nil {
		err = x.locate()
	}
	if err == nil {
		err = x.proceed(x.cluster)
	}
	if err != nil {
		x.fail(err)
	}
}

// begin counts the request. An error refuses it; its end follows in any case.
func (x *exchange) begin() error {
	active := x.Tracker.begin()
	x.conn.requested()
	return x.admit(active)
}

// admit refuses what is over the proxy's own limits.
func (x *exchange) admit(active int64) error {
	h, e := x.HTTP, x.Limits.judge(x.fields)
	switch {
	case e != nil:
		// Its connection costs too.
		x.last = true
		return e
	case h.MaxActive > 0 && active > int64(h.MaxActive):
		return &upstream.Error{
			Reason: upstream.Overload, Unsent: true, Unanswered: true,
			Err: fmt.Errorf("the requests in flight in this proxy are at their limit of %d", h.MaxActive),
		}
	case h.MaxRequestBytes > 0 && x.length > h.MaxRequestBytes:
		return upstream.TooLarge(h.MaxRequestBytes)
	}
	return nil
}

// locate finds the cluster that the request goes to.
func (x *exchange) locate() error {
	if x.grpc && x.timeout > 0 {
		x.via.bound(x.began.Add(x.timeout))
	}
	name, err := x.target()
	if err != nil {
		return err
	}
	cluster, err := x.resolve(x.via.context(), name)
	if err != nil {
		return err
	}
	x.found(cluster)
	return nil
}

func (x *exchange) found(cluster *endpoints.Cluster) {
	x.cluster = cluster
	if x.label == unknownCluster {
		x.label = x.name
	}
}

// proceed serves a request of which nothing but the cluster is decided.
func (x *exchange) proceed(cluster *endpoints.Cluster) error {
	if d := cluster.Config().Timeout; d > 0 {
		x.via.bound(x.began.Add(d))
	}
	x.over = x.conn.ctx
	if cluster.ClosesEstablished() {
		over, end := context.WithCancelCause(x.over)
		cancel := x.via.cancellable()
		x.over, x.cancel = over, func(err error) { cancel(err); end(err) }
		defer end(nil)
	}
	if x.tunnel {
		return x.connect(x.via.context())
	}
	x.via = x.via.toward(cluster)
	return x.relay(x.via.context())
}

// target notes the name of the cluster that the request is for, and gives it.
func (x *exchange) target() (name string, err error) {
	name, err = x.destination()
	if err == nil {
		x.name = name
	}
	return name, err
}

// destination is that name: a captured connection goes where it was going, whatever the authority says.
func (x *exchange) destination() (string, error) {
	switch {
	case x.conn.to != nil:
		to := x.conn.to
		x.label, x.name = to.label, to.name
		if to.refused != nil {
			// What holds for the connection may not hold for the next one.
			x.conn.leave()
		}
		return to.name, to.refused
	case x.Bound != "":
		return x.Bound, nil
	case x.memo != nil && x.memo.authority == x.authority && x.memo.name != "":
		return x.memo.name, nil
	}
	name, err := x.Names.Cluster(x.authority)
	if x.memo != nil && err == nil {
		x.memo.authority, x.memo.name = strings.Clone(x.authority), name
	}
	return name, err
}

// relay sends the request and passes the answer on.
func (x *exchange) relay(ctx context.Context) error {
	a, lease, err := x.send(ctx)
	if err != nil {
		return err
	}
	if x.AccessLog != nil {
		x.firstByte = time.Since(x.began)
	}
	switch {
	case a.status == http.StatusSwitchingProtocols:
		return x.switchProtocols(lease)
	case x.method == http.MethodConnect && a.status < http.StatusMultipleChoices:
		x.via.discard()
		lease.End(true)
		return unchanged(lease, a.status)
	}
	x.answer(ctx, a, lease)
	return nil
}

// clock is the time where somebody will want to know it: reading it costs what choosing an endpoint does.
func (x *exchange) clock() (t time.Time) {
	if x.AccessLog != nil {
		t = time.Now()
	}
	return t
}

// answer passes a final response on. Once its head is out, a failure can only abort.
func (x *exchange) answer(ctx context.Context, a answer, lease *endpoints.Lease) {
	x.status = a.status
	e := x.via.relay(ctx, lease, x.conn.told() || lease.Removed())
	if e == nil {
		return
	}
	e = ourDoing(upstream.EndOf(ctx), lease, e)
	if !lease.Over() {
		ok := notTheirs(e.Reason)
		if !ok {
			lease.BrokenOff()
		}
		lease.End(ok)
	}
	x.failed(e)
	x.via.abort(e)
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
