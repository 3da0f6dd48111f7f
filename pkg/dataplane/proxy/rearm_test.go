package proxy_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestDeadlineAfterATry: the time of an attempt runs out while the request waits for another endpoint. The time of
// the request holds all the same for the dial that follows.
func TestDeadlineAfterATry(t *testing.T) {
	r := newRig(t, func(c *endpoints.Config) { c.FailFast = 20 * time.Second })
	const try = 100 * time.Millisecond
	policy := func(c *discovery.Cluster) {
		c.ConnectTimeout = 20 * time.Second
		c.Retry = &discovery.Retry{On: []string{"unavailable"}, Attempts: 1, PerTryTimeout: try}
	}
	l := listen(t, "127.0.0.1:0")
	began := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := frame.(*http2.HeadersFrame); ok {
				// It has not seen the request, and takes no other.
				_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
				close(began)
				return
			}
		}
	}()
	r.put2(true, policy, l.Addr().String())
	full := fullListener(t)
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		<-began
		<-time.NewTimer(5 * try).C
		r.put2(true, policy, full)
	}()
	start := time.Now()
	got := r.ask(t.Context(), true, echo, deadlineOf(20*try))
	if took := time.Since(start); took > 10*time.Second || !strings.Contains(got.proxyStatus, "reason="+string(upstream.Deadline)) {
		t.Errorf("after %s: %+v", took, got)
	}
	<-served
	<-changed
}
