package proxy_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
)

// TestConnectAnnouncesItsClient: a tunnel begins with the PROXY header that the service asks for.
func TestConnectAnnouncesItsClient(t *testing.T) {
	r := newRig(t)
	l := listen(t, "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer func() { _ = c.Close() }()
		h, err := proxyproto.Read(c)
		got <- fmt.Sprint(h.Source, err)
	}()
	r.putCluster(&discovery.Cluster{ProxyHeader: true}, l.Addr().String())
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.serveHTTP(r.http()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nbytes that are no header", echo, echo)
	if g := <-got; g != fmt.Sprint(c.LocalAddr(), nil) {
		t.Errorf("announced %s, want %s", g, c.LocalAddr())
	}
}
