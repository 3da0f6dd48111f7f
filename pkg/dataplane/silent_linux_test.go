package dataplane_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// TestSilentClientIsTold: a client that connects ahead of its request, to a
// service of which no endpoint can be reached, is told so when it asks.
func TestSilentClientIsTold(t *testing.T) {
	if !inNamespace(t, redirects) {
		return
	}
	control, addr := newControl(t)
	control.set(echo, testaddr.Refused(t))
	control.alias("10.96.0.1:8080", echo)
	r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress, c.FailFast = ":15001", 50*time.Millisecond })
	c := from127(t, "10.96.0.1:8080")
	// It says nothing until the endpoint has been dialled in vain.
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Fatalf("before the request: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(c)
	_ = c.Close()
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 503 ") || !strings.Contains(string(b), "layer=balancing") {
		t.Errorf("%q, %v", b, err)
	}
	r.end()
}
