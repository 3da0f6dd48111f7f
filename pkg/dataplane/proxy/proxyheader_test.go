package proxy_test

import (
	"errors"
	"net"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
)

// TestProxyHeaderOut: an upstream that asks for it is told first who the client is.
func TestProxyHeaderOut(t *testing.T) {
	r := newRig(t)
	l := listen(t, "127.0.0.1:0")
	got := make(chan proxyproto.Header, 1)
	failed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			failed <- err
			return
		}
		h, err := proxyproto.Read(c)
		if err = errors.Join(err, c.Close()); err != nil {
			failed <- err
			return
		}
		got <- h
	}()
	t.Cleanup(func() { _ = l.Close() })
	r.putCluster(&discovery.Cluster{ProxyHeader: true}, l.Addr().String())
	c, err := net.Dial("tcp", r.serveTCP(echo))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	select {
	case h := <-got:
		if h.Source.String() != c.LocalAddr().String() || h.Destination.String() != c.RemoteAddr().String() {
			t.Errorf("%v for %v to %v", h, c.LocalAddr(), c.RemoteAddr())
		}
	case err := <-failed:
		t.Fatal(err)
	case <-t.Context().Done():
	}
}
