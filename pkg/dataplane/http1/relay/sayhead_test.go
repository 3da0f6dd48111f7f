package relay_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// An answer whose head has come, and whose request ends before there is anything to go with it, or just when it is to be
// written, reaches the client as one that breaks off: it never hears nothing at all.
func TestHeadIsSaid(t *testing.T) {
	endpoint := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
		_, _ = io.Copy(io.Discard, r)
	})
	removed := &upstream.Error{Reason: upstream.EndpointRemoved, Err: errors.New("it left")}
	over := func(x *relay.Exchange) { x.SetDeadline(time.Now().Add(-time.Second)) }
	cancelled := func(x *relay.Exchange) { x.CancelFunc()(removed) }
	relayed := func(x *relay.Exchange) error { return x.Relay(nil) }
	written := func(x *relay.Exchange) error {
		if err := x.WriteHead(&message.Response{Status: 200, Length: 3}); err != nil {
			return err
		}
		return x.Write([]byte("abc"))
	}
	for name, c := range map[string]struct {
		end    func(*relay.Exchange)
		answer func(*relay.Exchange) error
		reason upstream.Reason
	}{
		"relayed, no time":  {func(x *relay.Exchange) { x.SetDeadline(time.Now().Add(50 * time.Millisecond)) }, relayed, upstream.Deadline},
		"relayed, too late": {over, relayed, upstream.Deadline},
		"relayed, ended":    {cancelled, relayed, upstream.EndpointRemoved},
		"written, too late": {over, written, upstream.Deadline},
		"written, ended":    {cancelled, written, upstream.EndpointRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			ready, got := make(chan struct{}), make(chan error, 1)
			r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
				<-ready
				if err := r.send(x); err != nil {
					t.Error(err)
				}
				c.end(x)
				got <- c.answer(x)
			})}, endpoint)
			close(ready)
			client := r.dial()
			client.send(get())
			if text := client.rest(); !strings.HasPrefix(text, "HTTP/1.1 200 ") || !strings.HasSuffix(text, "\r\n\r\n") {
				t.Errorf("the client got %q", text)
			}
			if err := <-got; upstream.ReasonOf(err) != c.reason {
				t.Errorf("%v", err)
			}
		})
	}
}
