package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/detect"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// DefaultOpaquePorts are ports whose server speaks first, or whose protocol
// detection would take for another one: SMTP, MySQL, Galera, PostgreSQL, Redis,
// Elasticsearch and memcached (the list that linkerd documents, and PostgreSQL).
var DefaultOpaquePorts = []uint16{25, 587, 3306, 4444, 5432, 6379, 9300, 11211}

// The metric labels of connections that have no cluster of discovery's own.
const (
	labelInbound = "inbound"
	labelAddress = "address"
	labelPassed  = "passthrough"
)

// Captured serves a listener that connections are led to by the kernel. Those
// that carry HTTP, and those made to the listener itself, go to Handover.
type Captured struct {
	Config
	Handover *Handover
	// Inbound connections go to where they were going, this very host; others go
	// to the cluster that their destination names.
	Inbound bool
	// Opaque ports are relayed without a look at the bytes; Skip ports also without the control plane.
	Opaque, Skip map[uint16]bool
	// RefuseUnknown refuses destinations that the control plane does not know;
	// otherwise they are connected to as they are.
	RefuseUnknown bool
	// Own tells whether an address is one of the proxy's own listeners.
	Own func(netip.AddrPort) bool
	// Overloaded tells that new connections must be shed; may be nil.
	Overloaded func() bool
	// Idle ends a connection on which nothing moves; 0 is 1 h.
	Idle time.Duration
}

// route is where a captured connection goes.
type route struct {
	original netip.AddrPort
	// cluster is nil where the connection goes to original as it is.
	cluster     *endpoints.Cluster
	name, label string
	opaque      bool
	// refused is why it goes nowhere; nil when it does.
	refused error
}

// Serve accepts until l is closed, then closes the handover and waits for the
// connections to end. It gives nil after net.ErrClosed.
func (c *Captured) Serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = c.Handover.Close() }()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			c.Logger.Warn("accept failed", "listener", l.Addr(), "err", err)
			if !pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("accept on %s: %w", l.Addr(), err)
			}
			continue
		}
		wg.Go(func() { c.serve(ctx, conn, portOf(l.Addr())) })
	}
}

func (c *Captured) serve(ctx context.Context, conn net.Conn, own uint16) {
	tcp, ok := socketOf(conn)
	if !ok {
		c.Handover.give(conn)
		return
	}
	dst, led := capture.Destination(tcp, own)
	if !led {
		c.direct(conn, tcp)
		return
	}
	c.carry(ctx, conn, tcp, dst)
}

// direct is a connection that nobody led here: outbound it is a client that
// knows its proxy, inbound it has no destination.
func (c *Captured) direct(conn net.Conn, tcp *net.TCPConn) {
	if !c.Inbound {
		c.Handover.give(conn)
		return
	}
	err := &upstream.Error{
		Reason: upstream.NotCaptured, Unsent: true, Unanswered: true,
		Err: errors.New("this listener takes only connections that the kernel leads to it"),
	}
	c.refuse(conn, tcp, &route{refused: err, label: labelInbound})
}

// refuse tells a client that speaks HTTP why, and resets any other.
func (c *Captured) refuse(conn net.Conn, tcp *net.TCPConn, to *route) {
	release := c.Tracker.hold(conn)
	o, err := sniff(tcp, time.Second, func() (*link, error) { return nil, to.refused })
	release()
	if err == nil && (o.protocol == detect.HTTP1 || o.protocol == detect.HTTP2) {
		c.Handover.give(&replayed{TCPConn: tcp, head: o.head, to: to, closer: conn})
		return
	}
	c.fail(conn, tcp, to, to.refused)
}

// fail resets a connection that went nowhere: opaque TCP has no words.
func (c *Captured) fail(conn net.Conn, tcp *net.TCPConn, to *route, err error) {
	_ = tcp.SetLinger(0)
	_ = conn.Close()
	reason := upstream.ReasonOf(err)
	c.Logger.Debug("connection failed", "destination", to.original, "cluster", to.label, "reason", reason, "err", err)
	c.Metrics.ended(to.label, 0, reason, 0)
}

// carry brings a captured connection to where it was going.
func (c *Captured) carry(ctx context.Context, conn net.Conn, tcp *net.TCPConn, dst netip.AddrPort) {
	c.Tracker.begin()
	defer c.Tracker.end()
	release := c.Tracker.hold(conn)
	defer release()
	to := c.find(ctx, dst)
	if to.refused != nil {
		c.refuse(conn, tcp, to)
		return
	}
	from := addrPortOf(tcp.RemoteAddr())
	dial := func() (*link, error) { return c.dialTarget(ctx, to, from) }
	o, err := opening{protocol: detect.Opaque}, error(nil)
	if !to.opaque {
		o, err = sniff(tcp, c.idle(), dial)
	}
	if err == nil && c.asHTTP(to, o.protocol) {
		o.up.close()
		c.Handover.give(&replayed{TCPConn: tcp, head: o.head, to: c.forProtocol(ctx, to, o.protocol), closer: conn})
		return
	}
	if err == nil && o.up == nil {
		o.up, err = dial()
	}
	if err != nil {
		c.fail(conn, tcp, to, err)
		return
	}
	defer o.up.close()
	defer func() { _ = conn.Close() }()
	reason := upstream.ClientGone
	if _, err := tcp.Write(o.greeting); err == nil {
		if _, err = o.up.Write(o.head); err == nil {
			reason = relayConns(o.up.TCPConn, tcp, c.idle())
		}
	}
	c.Metrics.ended(to.label, 0, reason, 0)
}

func (c *Captured) idle() time.Duration { return cmp.Or(c.Idle, time.Hour) }

// asHTTP tells whether requests are relayed one by one. HTTP/2 to an upstream
// that is not known to speak it passes as it is: as HTTP/1.1 a gRPC call would not arrive.
func (c *Captured) asHTTP(to *route, p detect.Protocol) bool {
	switch p {
	case detect.HTTP1:
		return true
	case detect.HTTP2:
		return c.Inbound || to.cluster.Config().HTTP2
	case detect.Undecided, detect.TLS, detect.Opaque:
	}
	return false
}

// forProtocol is the route of inbound HTTP/2: the application is spoken to as the client speaks.
func (c *Captured) forProtocol(ctx context.Context, to *route, p detect.Protocol) *route {
	if !c.Inbound || p != detect.HTTP2 {
		return to
	}
	next := *to
	next.name = inboundName(to.original, true)
	if next.cluster, next.refused = c.resolve(ctx, next.name); next.refused != nil {
		next.cluster = nil
	}
	return &next
}

// find tells where dst leads.
func (c *Captured) find(ctx context.Context, dst netip.AddrPort) *route {
	to := &route{original: dst, label: labelInbound, opaque: c.Opaque[dst.Port()]}
	if c.Overloaded != nil && c.Overloaded() {
		to.refused = &upstream.Error{
			Reason: upstream.Overload, Unsent: true, Unanswered: true,
			Err: errors.New("the proxy holds as much memory as it may"),
		}
		return to
	}
	if c.Own(dst) {
		to.refused = &upstream.Error{
			Reason: upstream.Loop, NextHop: dst, Unsent: true, Unanswered: true,
			Err: errors.New("the destination is this proxy"),
		}
		return to
	}
	switch {
	case c.Skip[dst.Port()]:
		to.label, to.opaque = labelPassed, true
	case c.Inbound:
		to.name = inboundName(dst, false)
		to.cluster, to.refused = c.resolve(ctx, to.name)
	default:
		c.lookUp(ctx, to)
	}
	return to
}

// lookUp asks discovery for the address, and for the service that it stands for.
func (c *Captured) lookUp(ctx context.Context, to *route) {
	to.label, to.name = labelAddress, to.original.String()
	found, err := c.resolve(ctx, to.name)
	if err == nil && found.Config().Alias != "" {
		to.name = found.Config().Alias
		to.label = to.name
		found, err = c.resolve(ctx, to.name)
	}
	switch {
	case err == nil && !found.Config().Skip:
		to.cluster, to.opaque = found, to.opaque || found.Config().Opaque
	case err == nil, !c.RefuseUnknown && upstream.ReasonOf(err) != upstream.ClientGone:
		to.label, to.opaque = labelPassed, true
	case upstream.ReasonOf(err) == upstream.NoSuchService:
		to.label = unknownCluster
		to.refused = &upstream.Error{Reason: upstream.UnknownDestination, NextHop: to.original, Unsent: true, Unanswered: true, Err: err}
	default:
		to.label, to.refused = unknownCluster, err
	}
}

// ServeHTTP is the handler for what was handed over: captured connections go
// where they were going whatever the authority says, others by authority.
func (c *Captured) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := routeOf(r.Context())
	switch {
	case to == nil:
		(&HTTP{Config: c.Config}).ServeHTTP(w, r)
	case to.refused != nil:
		c.Tracker.begin()
		defer c.Tracker.end()
		w.Header().Set("Connection", "close")
		e := asError(to.refused)
		c.Metrics.ended(to.label, respond(w, r, e), e.Reason, 0)
	default:
		(&HTTP{Config: c.Config, Bound: to.name, Label: to.label}).ServeHTTP(w, r)
	}
}

// socketOf gives the socket under a connection that a listener of ours has wrapped.
func socketOf(c net.Conn) (*net.TCPConn, bool) {
	switch c := c.(type) {
	case *net.TCPConn:
		return c, true
	case interface{ Socket() *net.TCPConn }:
		return c.Socket(), true
	}
	return nil, false
}

func addrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

func portOf(a net.Addr) uint16 { return addrPortOf(a).Port() }
