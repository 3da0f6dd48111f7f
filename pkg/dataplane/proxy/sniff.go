package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/detect"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// clientSilence is how long a client may say nothing before the upstream is
	// dialled, since the server may be the one to speak first.
	clientSilence = 100 * time.Millisecond
	// undecidedTime bounds the wait for the rest of what has begun like HTTP or TLS.
	undecidedTime = 10 * time.Second
	// greetingBytes is how much of a server's first words is read before the copying begins.
	greetingBytes = 4 << 10
)

// link is an opaque connection to an upstream, and what ends it.
type link struct {
	*upstream.Raw
	// lease is nil where no cluster leads there.
	lease *endpoints.Lease
	end   func()
}

// hop is where it leads.
func (l *link) hop() netip.AddrPort { return capture.AddrPort(l.RemoteAddr()) }

func (l *link) close() {
	if l != nil {
		_ = l.Close()
		l.end()
	}
}

// opening is how a connection began.
type opening struct {
	// head is what the client has said, greeting what the server has.
	head, greeting []byte
	protocol       detect.Protocol
	// up is the connection to the upstream, where there is one already.
	up *link
}

// sniff looks how a connection begins:
//
//	client speaks ──────────────▶ undecided ──▶ decided
//	   │ silent for 100 ms            ▲
//	   ▼                              │ client speaks first: what was dialled stays for opaque protocols
//	upstream is dialled ──▶ both are listened to ──server speaks first──▶ opaque
//
// Without dial the client has the idle time to speak, and what is silent is opaque.
// An error is a failed dial, or one of the client's connection; nothing is left open then but client.
func sniff(client *net.TCPConn, idle time.Duration, dial func() (*link, error)) (o opening, err error) {
	defer func() { _ = client.SetDeadline(time.Time{}) }()
	buf := make([]byte, detect.MaxBytes)
	silence := clientSilence
	if dial == nil {
		silence = idle
	}
	n, err := readBefore(client, buf, silence)
	if dial != nil && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		if o.up, err = dial(); err != nil {
			return o, err
		}
		var first int
		if o.greeting, first, err = listenToBoth(client, o.up, buf, idle); len(o.greeting) > 0 || err != nil {
			o.head, o.protocol = buf[:first], detect.Opaque
			return o, keep(&o, err)
		}
		n = first
	}
	for deadline := time.Now().Add(undecidedTime); ; {
		o.head, o.protocol = buf[:n], detect.Classify(buf[:n])
		if err != nil && o.protocol == detect.Undecided {
			// What ended or stood still before it was HTTP is not HTTP.
			o.protocol = detect.Opaque
		}
		if o.protocol != detect.Undecided {
			return o, keep(&o, err)
		}
		var more int
		more, err = readBefore(client, buf[n:], time.Until(deadline))
		n += more
	}
}

// keep gives nil for what ends an opening without spoiling the connection.
func keep(o *opening, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	o.up.close()
	o.up = nil
	return &upstream.Error{Reason: upstream.ClientGone, Unsent: true, Unanswered: true, Err: err}
}

func readBefore(c *net.TCPConn, p []byte, d time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	return c.Read(p)
}

// listenToBoth waits until one side speaks or ends, and gives what both said.
// The error is io.EOF where the server ended without a word, and
// os.ErrDeadlineExceeded where nobody spoke for the idle time.
func listenToBoth(client *net.TCPConn, up *link, buf []byte, idle time.Duration) (greeting []byte, n int, err error) {
	past := time.Unix(1, 0)
	if err := client.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return nil, 0, err
	}
	words := make([]byte, greetingBytes)
	var said int
	var serverErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		said, serverErr = up.Read(words)
		_ = client.SetReadDeadline(past)
	}()
	n, err = client.Read(buf)
	_ = up.SetReadDeadline(past)
	<-done
	_ = up.SetReadDeadline(time.Time{})
	switch {
	case said > 0:
		return words[:said], n, nil
	case n > 0:
		return nil, n, nil
	case serverErr != nil && !errors.Is(serverErr, os.ErrDeadlineExceeded):
		// The end passes on to the client when the copying finds it again.
		return nil, n, io.EOF
	}
	return nil, n, err
}

// dialTarget makes an opaque connection for a route.
func (c *Config) dialTarget(ctx context.Context, to *route, from netip.AddrPort, cancel context.CancelCauseFunc, p *passage) (*link, error) {
	if to.cluster != nil {
		return c.dialLink(ctx, to.cluster, proxyproto.Header{Source: from, Destination: to.original}, cancel, p)
	}
	pool := upstream.New(upstream.Config{Address: to.original})
	began := time.Now()
	raw, err := pool.Dial(ctx)
	p.dialled(mesh.EndpointKey{Address: to.original}, upstream.ReasonOf(err), time.Since(began))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return newLink(ctx, raw, nil, pool.Close), nil
}

// dialLink makes an opaque connection to a cluster, which hears from whom it is where it asks for that.
func (c *Config) dialLink(ctx context.Context, cluster *endpoints.Cluster, from proxyproto.Header, cancel context.CancelCauseFunc, p *passage) (*link, error) {
	raw, lease, err := c.dialCluster(ctx, cluster, clientHash(from.Source.String()), cancel, p.dialled)
	if err != nil {
		return nil, err
	}
	up := newLink(ctx, raw, lease, func() { lease.End(true) })
	if err := announce(cluster, raw, from); err != nil {
		up.close()
		return nil, err
	}
	return up, nil
}

// newLink makes a link that is reset when ctx ends.
func newLink(ctx context.Context, raw *upstream.Raw, lease *endpoints.Lease, end func()) *link {
	stop := context.AfterFunc(ctx, func() { reset(raw) })
	return &link{raw, lease, func() { stop(); end() }}
}
