package proxy_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// endlessBody answers with a body that never ends.
func endlessBody(t *testing.T) *backend {
	t.Helper()
	return newBackend(t, "endless", func(w http.ResponseWriter, _ *http.Request) {
		page := make([]byte, 32<<10)
		for {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	})
}

// unreadAnswer asks for an answer and takes no more of it than the first windows have room for; what it gives hears
// whether the answer is broken off.
func (r *rig) unreadAnswer() <-chan bool {
	r.t.Helper()
	c := r.framed()
	_ = c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	c.get(1)
	if f := c.next(); f == nil {
		r.t.Fatal("no answer")
	}
	over := make(chan bool, 1)
	go func() {
		for {
			f, err := c.ReadFrame()
			if _, reset := f.(*http2.RSTStreamFrame); reset || err != nil {
				over <- err == nil
				return
			}
		}
	}()
	return over
}

// unreadAnswers has f called for an unread answer to each kind of client, by each kind of endpoint.
func unreadAnswers(t *testing.T, c discovery.Cluster, f func(r *rig)) {
	t.Helper()
	for name, h2 := range map[string]bool{"endpoint HTTP/1.1": false, "endpoint HTTP/2": true} {
		cluster := func() *rig {
			r := newRig(t)
			here := c
			here.HTTP2 = h2
			r.putCluster(&here, endlessBody(t).addr)
			return r
		}
		t.Run("client HTTP/2, "+name, func(t *testing.T) {
			r := cluster()
			over := r.unreadAnswer()
			f(r)
			if !<-over {
				t.Error("it is not broken off")
			}
			testwait.Until(t, "nothing is in flight", func() bool { return r.tracker.Active() == 0 })
		})
		t.Run("client HTTP/1.1, "+name, func(t *testing.T) {
			r := cluster()
			c := r.dial(r.addr)
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+echo+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			f(r)
			testwait.Until(t, "nothing is in flight", func() bool { return r.tracker.Active() == 0 })
		})
	}
}

// TestDeadlineOfAnUnreadAnswer: the time of a request is over for a client too that does not read.
func TestDeadlineOfAnUnreadAnswer(t *testing.T) {
	unreadAnswers(t, discovery.Cluster{Timeout: 300 * time.Millisecond}, func(*rig) {})
}

// TestEjectionAndAnUnreadAnswer is the same for a service that closes what is established.
func TestEjectionAndAnUnreadAnswer(t *testing.T) {
	unreadAnswers(t, discovery.Cluster{CloseOnEjection: true}, (*rig).eject)
}

// TestRemovalAndAnUnreadAnswer: at the end of its endpoint's drain an answer breaks off that an HTTP/2 client does not read.
func TestRemovalAndAnUnreadAnswer(t *testing.T) {
	for name, h2 := range map[string]bool{"endpoint HTTP/1.1": false, "endpoint HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.putCluster(&discovery.Cluster{HTTP2: h2}, endlessBody(t).addr)
			over := r.unreadAnswer()
			r.putCluster(&discovery.Cluster{HTTP2: h2})
			if !<-over {
				t.Error("it is not broken off")
			}
			r.counted("endpoint_removed", 1)
		})
	}
}
