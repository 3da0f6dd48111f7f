package dataplane_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// "OPTIONS *" asks the backend (RFC 9110 section 9.3.7), not the proxy, which
// here must say that it knows none.
func TestOptionsStarIsRelayed(t *testing.T) {
	p, err := dataplane.New(dataplane.Config{
		NodeID: "n", XDSAddresses: []string{"127.0.0.1:1"}, OutboundAddress: "127.0.0.1:0",
		DiscoveryTimeout: 50 * time.Millisecond, DrainTime: 40 * time.Millisecond, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c, err := net.Dial("tcp", p.Addresses()["outbound"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: echo\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s, Proxy-Status %q", resp.Status, resp.Header.Get("Proxy-Status"))
	}
}
