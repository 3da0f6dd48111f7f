package proxy

import (
	"context"
	"errors"
	"net"
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
// that carry HTTP are served by request, as HTTP serves its own, and so are
// those made to the listener itself. Inbound connections go to where they were
// going, this very host; others go to the cluster that their destination names.
type Captured struct {
	Config
	// Inbound: the connections are for applications on this host, and Discovery is an *Inbound.
	Inbound bool
	// Opaque ports are relayed without a look at the bytes; Skip ports also without the control plane.
	Opaque, Skip map[uint16]bool
	// RefuseUnknown refuses destinations that the control plane does not know;
	// otherwise they are connected to as they are.
	RefuseUnknown bool
	// Own tells whether an address is one of the proxy's own listeners.
	Own func(netip.AddrPort) bool
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

// Serve accepts until l is closed, and then waits for the opaque connections to
// end. It gives nil after net.ErrClosed.
func (c *Captured) Serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	h := &HTTP{Config: c.Config}
	own := capture.AddrPort(l.Addr()).Port()
	return c.accept(ctx, l, func(conn net.Conn) {
		wg.Go(func() { c.serve(ctx, conn, own, h.takeHTTP1) })
	})
}

// serve finds out where a connection was going, and carries it there. What
// turns out to be HTTP goes to take.
func (c *Captured) serve(ctx context.Context, conn net.Conn, own uint16, take func(arrival)) {
	tcp := socketOf(conn)
	dst, led := capture.Destination(tcp, own)
	if !led && !c.Inbound {
		// A client that knows its proxy.
		take(arrival{Conn: conn, tcp: tcp})
		return
	}
	c.pass(ctx, conn, func(ctx context.Context, cancel context.CancelCauseFunc, p *passage) error {
		to := notCaptured
		if led {
			to = c.find(ctx, dst)
		}
		p.label, p.Cluster = to.label, to.name
		o, err := c.open(ctx, tcp, to, cancel, p)
		if err == nil && c.asHTTP(to, o.protocol) {
			o.up.close()
			p.handedOver = true
			take(arrival{Conn: conn, tcp: tcp, head: o.head, to: c.forProtocol(ctx, to, o.protocol)})
			return nil
		}
		if err == nil {
			err = to.refused
		}
		if err != nil {
			// Opaque TCP has no words: a reset is how a refused connection looks.
			o.up.close()
			reset(tcp)
			return err
		}
		return c.carry(ctx, tcp, o, p)
	})
}

// notCaptured is the route of an inbound connection that nobody led here: it has no destination.
var notCaptured = &route{label: labelInbound, refused: &upstream.Error{
	Reason: upstream.NotCaptured, Unsent: true, Unanswered: true,
	Err: errors.New("this listener takes only connections that the kernel leads to it"),
}}

// refusedTime is how long a client that goes nowhere has to show whether it speaks HTTP.
const refusedTime = time.Second

// open looks how a connection begins, and makes the one to the upstream where
// bytes are to be relayed.
func (c *Captured) open(ctx context.Context, client *net.TCPConn, to *route, cancel context.CancelCauseFunc, p *passage) (opening, error) {
	from := capture.AddrPort(client.RemoteAddr())
	dial := func() (*link, error) { return c.dialTarget(ctx, to, from, cancel, p) }
	if to.refused != nil {
		// A client that speaks HTTP is told why.
		return sniff(client, refusedTime, nil)
	}
	o, err := opening{protocol: detect.Opaque}, error(nil)
	if !to.opaque {
		o, err = sniff(client, c.tcpIdle(), dial)
	}
	if err != nil && upstream.ReasonOf(err) != upstream.ClientGone && !to.opaque {
		// Nobody could be dialled for a silent client. Its request, if one comes, is told why.
		if late, gone := sniff(client, refusedTime, nil); gone == nil && c.asHTTP(to, late.protocol) {
			return late, nil
		}
	}
	if err == nil && o.up == nil && !c.asHTTP(to, o.protocol) {
		o.up, err = dial()
	}
	return o, err
}

// carry relays bytes, those first that both sides have said already.
func (c *Captured) carry(ctx context.Context, client *net.TCPConn, o opening, p *passage) error {
	defer o.up.close()
	defer func() { _ = client.Close() }()
	defer o.up.OnClose(func() { reset(client) })()
	if _, err := client.Write(o.greeting); err != nil {
		return &upstream.Error{Reason: upstream.ClientGone, Err: err}
	}
	var (
		received, sent int64
		why            *upstream.Error
	)
	if _, err := o.up.Write(o.head); err == nil {
		received, sent, why = relayConns(o.up.TCPConn, client, c.tcpIdle())
	} else {
		reset(client)
		why = &upstream.Error{Reason: upstream.ResetBeforeHeaders, Err: err}
	}
	if why != nil && why.Reason == upstream.ResetBeforeHeaders && len(o.greeting) > 0 {
		why.Reason = upstream.ResetMidBody
	}
	p.BytesReceived, p.BytesSent = received+int64(len(o.head)), sent+int64(len(o.greeting))
	return brokenBy(ctx, o.up.lease, o.up.hop(), why)
}

// asHTTP tells whether requests are relayed one by one. HTTP/2 to an upstream
// that is not known to speak it passes as it is: as HTTP/1.1 a gRPC call would not arrive.
func (c *Captured) asHTTP(to *route, p detect.Protocol) bool {
	switch p {
	case detect.HTTP1:
		return true
	case detect.HTTP2:
		return to.refused != nil || c.Inbound || to.cluster.Config().HTTP2
	case detect.Undecided, detect.TLS, detect.Opaque:
	}
	return false
}

// forProtocol is the route of inbound HTTP/2: the application is spoken to as the client speaks.
func (c *Captured) forProtocol(ctx context.Context, to *route, p detect.Protocol) *route {
	if !c.Inbound || p != detect.HTTP2 || to.refused != nil {
		return to
	}
	next := *to
	next.name = inboundName(to.original, true)
	next.cluster, next.refused = c.resolve(ctx, next.name)
	return &next
}

// find tells where dst leads.
func (c *Captured) find(ctx context.Context, dst netip.AddrPort) *route {
	to := &route{original: dst, label: labelInbound, opaque: c.Opaque[dst.Port()]}
	if e := c.Limits.overloaded(); e != nil {
		to.refused = e
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
