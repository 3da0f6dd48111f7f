package relay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// An answer from elsewhere, such as an HTTP/2 endpoint, has all that a relayed one has.
func TestAnswerFromElsewhere(t *testing.T) {
	r := start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		var body strings.Builder
		for {
			part, err := x.ReadBody()
			if err != nil {
				t.Error(err)
				return
			}
			if len(part) == 0 {
				break
			}
			body.Write(part)
		}
		if x.Request().Method == http.MethodPost {
			_ = x.WriteHead(&message.Response{Status: 103, Fields: []message.Field{{Name: "link", Value: "</a>"}}})
		}
		m := &message.Response{Status: 200, Length: -1, Fields: []message.Field{{Name: "x-y", Value: "z"}}}
		if x.Request().Path == "/short" {
			m.Length = 1000
		}
		_ = x.WriteHead(m)
		_ = x.Write([]byte(body.String()))
		_ = x.Finish([]message.Field{{Name: "x-trailer", Value: "t"}})
	})})
	big := strings.Repeat("0123456789", 20000)
	resp, err := client(t).Post("http://"+r.address+"/", "x", io.MultiReader(strings.NewReader(big)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != big || resp.Trailer.Get("X-Trailer") != "t" || resp.Header.Get("X-Y") != "z" {
		t.Errorf("%d bytes, %v, trailers %v", len(got), err, resp.Trailer)
	}
	resp, err = client(t).Get("http://" + r.address + "/short")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a body that was too short came to an end")
	}
	resp, err = client(t).Head("http://" + r.address + "/")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v, %v", resp, err)
	}
}

// A handler that does nothing, or panics nowhere and forgets, costs its client the connection.
func TestNoAnswer(t *testing.T) {
	r := start(t, relay.Config{Handler: handler(func(*relay.Exchange) {})})
	c := r.dial()
	c.send(get())
	if got := c.rest(); got != "" {
		t.Errorf("got %q", got)
	}
}

// An answer that broke off is not followed by another one.
func TestNoSecondAnswer(t *testing.T) {
	var r *rig
	ready := make(chan struct{})
	r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		<-ready
		if err := r.send(x); err != nil {
			t.Error(err)
			return
		}
		if err := x.Relay(nil); err == nil {
			t.Error("it came whole")
		}
		if x.Respond(502, nil, "freshmesh") == nil || x.WriteHead(&message.Response{Status: 200}) == nil {
			t.Error("a second answer was taken")
		}
	})}, canned(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n"))
	close(ready)
	c := r.dial()
	c.send(get())
	if got := c.rest(); !strings.HasSuffix(got, "\r\n\r\n") || strings.Contains(got, "freshmesh") {
		t.Errorf("got %q", got)
	}
}

// What stands behind a CONNECT or an upgrade that failed is not taken for a request.
func TestRefusedChangeOfProtocols(t *testing.T) {
	r := start(t, relay.Config{Handler: handler(func(x *relay.Exchange) { _ = x.Respond(503, nil, "no") })})
	for _, text := range []string{
		"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
		get("Connection: upgrade\r\nUpgrade: x\r\n"),
	} {
		c := r.dial()
		c.send(text + "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := c.response("GET"); resp.StatusCode != 503 || !resp.Close {
			t.Errorf("%q: status %d, close %v", text, resp.StatusCode, resp.Close)
		}
		if rest := c.rest(); rest != "" {
			t.Errorf("%q: then %q", text, rest)
		}
	}
}

func TestContext(t *testing.T) {
	var contexts []context.Context
	cause := errors.New("that is why")
	r := start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		ctx := x.Context()
		contexts = append(contexts, ctx)
		if ctx.Err() != nil {
			t.Error("it has ended already")
		}
		switch x.Request().Path {
		case "/deadline":
			x.SetDeadline(time.Now().Add(20 * time.Millisecond))
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
		case "/cancel":
			time.AfterFunc(20*time.Millisecond, func() { x.CancelFunc()(cause) })
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), cause) || !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("cause %v, error %v", context.Cause(ctx), ctx.Err())
			}
		case "/cancelled":
			x.CancelFunc()(cause)
			if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), cause) {
				t.Errorf("error %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
		case "/late":
			x.SetDeadline(time.Now().Add(-time.Second))
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("error %v", ctx.Err())
			}
		}
		_ = x.Respond(200, nil, "")
	})})
	c := r.dial()
	for _, path := range []string{"/", "/deadline", "/", "/cancel", "/", "/cancelled", "/late", "/"} {
		c.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		c.response("GET")
	}
	// Those on which somebody waited are not used again for another request.
	for _, i := range []int{1, 3, 5, 6} {
		if contexts[i].Err() == nil {
			t.Errorf("context %d lives on", i)
		}
	}
}
