package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// answerer has a goroutine answer each request.
type answerer struct {
	plain
	answer func(a *Answering)
	wg     sync.WaitGroup
}

func (h *answerer) Request(Ticket, *message.Request) (Decider, Decision) {
	var a *Answering
	a = NewAnswering(context.Background(), func() {
		h.wg.Go(func() {
			defer a.Close()
			h.answer(a)
		})
	})
	return &plain{}, Decision{To: a}
}

func startAnswerer(t *testing.T, answer func(a *Answering)) string {
	t.Helper()
	h := &answerer{answer: answer}
	t.Cleanup(h.wg.Wait)
	return startHandler(t, h)
}

// TestAnswering: a goroutine reads a body that is longer than all windows and writes it back, with trailers.
func TestAnswering(t *testing.T) {
	addr := startAnswerer(t, func(a *Answering) {
		a.WriteHead(&message.Response{Status: 103}, false)
		a.WriteHead(&message.Response{Status: 200, Fields: []message.Field{{Name: "trailer", Value: "sum"}}}, false)
		for {
			p, err := a.ReadBody(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if len(p) == 0 {
				break
			}
			if _, err := a.Write(p); err != nil {
				t.Error(err)
				return
			}
		}
		a.Finish([]message.Field{{Name: "sum", Value: message.Fields(a.Trailers()).Get("sum")}})
	})
	want := bytes.Repeat([]byte("0123456789abcdef"), 200<<10)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/", io.NopCloser(bytes.NewReader(want)))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"Sum": {"42"}}
	resp, err := goClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || err != nil || !bytes.Equal(got, want) || resp.Trailer.Get("Sum") != "42" {
		t.Errorf("%d, %d bytes, %v, %v", resp.StatusCode, len(got), resp.Trailer, err)
	}
}

// TestAnsweringEarly: an answer before the end of the request ends it, and the client keeps its connection.
func TestAnsweringEarly(t *testing.T) {
	addr := startAnswerer(t, func(a *Answering) { a.Reply(&message.Response{Status: 413}, "too much") })
	client := goClient(t)
	for range 5 {
		body, end := io.Pipe()
		resp, err := client.Post("http://"+addr+"/", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_, _ = resp.Body.Close(), end.Close()
		if resp.StatusCode != 413 || string(got) != "too much" || err != nil {
			t.Errorf("%d %q %v", resp.StatusCode, got, err)
		}
	}
}

// TestAnsweringGone: a client that gives its request up ends the context and every wait.
func TestAnsweringGone(t *testing.T) {
	began := make(chan struct{})
	over := make(chan error, 3)
	addr := startAnswerer(t, func(a *Answering) {
		a.WriteHead(&message.Response{Status: 200}, false)
		close(began)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.ReadBody(t.Context())
			over <- err
		})
		_, err := a.Write(make([]byte, 32<<20))
		over <- err
		wg.Wait()
		over <- context.Cause(a.Context())
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, end := io.Pipe()
	defer func() { _ = end.Close() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := goClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	_ = resp.Body.Close()
	for range 3 {
		if err := <-over; upstream.ReasonOf(err) != upstream.ClientGone {
			t.Errorf("%v", err)
		}
	}
}

// TestAnsweringAborted: what is broken off does not look whole.
func TestAnsweringAborted(t *testing.T) {
	addr := startAnswerer(t, func(a *Answering) {
		a.WriteHead(&message.Response{Status: 200}, false)
		_, _ = a.Write([]byte("part"))
		a.Abort(&upstream.Error{Reason: upstream.ResetMidBody, Err: errors.New("broken")})
	})
	resp, err := goClient(t).Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q", got)
	}
	_ = resp.Body.Close()
}
