package mitm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// judged runs a test on a relay that passes bytes as they come, and on one that
// puts messages together for a fault that matches none.
func judged(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%t", whole), func(t *testing.T) {
			r := newRig(t, nil)
			if whole {
				t.Cleanup(r.proxy.Swallow(func(Message) bool { return false }))
			}
			test(t, r)
		})
	}
}

func TestUnary(t *testing.T) {
	judged(t, func(t *testing.T, r *rig) {
		passes(t, r.health)
		if s := r.proxy.Stats(); s.Connections != 1 || s.Open != 1 || s.Streams != 50 || s.Messages[Kind{Direction: ToServer}] != 50 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestBidirectional(t *testing.T) {
	judged(t, func(t *testing.T, r *rig) {
		s := r.stream(t, "a")
		for i := range 500 {
			n := fmt.Sprint(i)
			s.ask(t, n)
			s.want(t, n)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end: %v", err)
		}
	})
}

// Messages far above every window and every frame.
func TestLargeMessages(t *testing.T) {
	judged(t, func(t *testing.T, r *rig) {
		s := r.stream(t, "a")
		large := strings.Repeat("freshness ", 1<<19)
		for i := range 3 {
			s.send(t, &request{ResponseNonce: fmt.Sprint(i), ResourceNamesSubscribe: []string{large}})
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got := m.GetRemovedResources(); len(got) != 1 || got[0] != large {
				t.Fatal("changed on the way")
			}
		}
	})
}

// A message above what the proxy examines passes all the same.
func TestUnexamined(t *testing.T) {
	judged(t, func(t *testing.T, r *rig) {
		s := r.stream(t, "a")
		s.send(t, &request{ResponseNonce: "x", ResourceNamesSubscribe: []string{strings.Repeat("x", 20<<20)}})
		s.want(t, "x")
		s.ask(t, "y")
		s.want(t, "y")
		if n := r.proxy.Stats().Unexamined; n != 2 {
			t.Errorf("%d unexamined", n)
		}
	})
}

func TestManyStreams(t *testing.T) {
	judged(t, func(t *testing.T, r *rig) {
		g, ctx := errgroup.WithContext(t.Context())
		for i := range 100 {
			g.Go(func() error {
				s, err := r.ads.DeltaAggregatedResources(ctx)
				if err != nil {
					return err
				}
				body := strings.Repeat(fmt.Sprint(i), 5000)
				for j := range 8 {
					if err := s.Send(&request{ResponseNonce: fmt.Sprint(j), ResourceNamesSubscribe: []string{body}}); err != nil {
						return err
					}
				}
				for j := range 8 {
					m, err := s.Recv()
					if err != nil {
						return err
					}
					if m.GetNonce() != fmt.Sprint(j) || m.GetRemovedResources()[0] != body {
						return fmt.Errorf("stream %d: wrong answer %s", i, m.GetNonce())
					}
				}
				return s.CloseSend()
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if s := r.proxy.Stats(); s.Streams != 100 || s.Connections != 1 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// Headers, trailers, and an answer that is nothing but trailers.
func TestMetadataAndErrors(t *testing.T) {
	long := strings.Repeat("long ", 8<<10) // HEADERS and CONTINUATION
	r := newRig(t, func(s serverStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		if v := md.Get("long"); len(v) != 1 || v[0] != long {
			return status.Error(codes.Internal, "the request's metadata are not what they were")
		}
		if err := s.SendHeader(metadata.Pairs("answer-bin", "\x00\x01\xff")); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("end", long))
		return status.Error(codes.DataLoss, "with é and %")
	})
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "long", long)
	s, err := r.ads.DeltaAggregatedResources(ctx, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	if status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "with é and %" {
		t.Errorf("error: %v", err)
	}
	if v := s.Trailer().Get("end"); len(v) != 1 || v[0] != long {
		t.Error("the trailers are not what they were")
	}
	if header, err = s.Header(); err != nil || len(header.Get("answer-bin")) != 1 || !bytes.Equal([]byte(header.Get("answer-bin")[0]), []byte{0, 1, 255}) {
		t.Errorf("header: %v %v", header, err)
	}
	sotw, err := r.ads.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = sotw.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("trailers only: %v", err)
	}
}

// A client that cancels, and a server that goes away gracefully.
func TestEnds(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.stream(t, "a"), r.stream(t, "b")
	a.cancel()
	until(t, "cancelled", func() bool { return r.ended.Load() == 1 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.server.GracefulStop() }()
	b.ask(t, "still")
	b.want(t, "still")
	if err := b.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	<-stopped
	until(t, "closed on both sides", func() bool { return r.proxy.Stats().Open == 0 })
	if s := r.proxy.Stats(); s.Broken != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// flood is a server that sends floodMessages responses of 64 KiB, or until the client is gone.
type flood struct{ sent atomic.Int32 }

const floodMessages = 200

func (f *flood) serve(s serverStream) error {
	body := []string{strings.Repeat("x", 64<<10)}
	if _, err := s.Recv(); err != nil {
		return err
	}
	for i := range floodMessages {
		if err := s.Send(&response{Nonce: fmt.Sprint(i), RemovedResources: body}); err != nil {
			return err
		}
		f.sent.Add(1)
	}
	return nil
}

// start opens a stream that is flooded.
func (f *flood) start(t *testing.T, r *rig) *peer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := r.ads.DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{clientStream: s, cancel: cancel}
	p.ask(t, "begin")
	return p
}

// drain reads the rest of a flood from the message with number from on.
func drain(t *testing.T, p *peer, from int) {
	t.Helper()
	for i := from; i < floodMessages; i++ {
		p.want(t, fmt.Sprint(i))
	}
	if _, err := p.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// A client that does not read blocks the server through the proxy, and nothing is lost.
func TestBackPressure(t *testing.T) {
	for name, fault := range map[string]func(*Proxy) func(){
		"none":       func(*Proxy) func() { return func() {} },
		"messages":   func(p *Proxy) func() { return p.Swallow(func(Message) bool { return false }) },
		"duplicates": func(p *Proxy) func() { return p.Duplicate(withNonce(ToServer, "begin")) },
		"stalled": func(p *Proxy) func() {
			return p.StallStreams(func(s Stream) bool { return strings.Contains(s.Method, "Delta") && s.ID > 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f flood
			r := newRig(t, f.serve)
			undo := fault(r.proxy)
			defer undo()
			s := f.start(t, r)
			until(t, "flowing", func() bool { return f.sent.Load() > 0 })
			passes(t, r.direct)
			if n := f.sent.Load(); n == floodMessages {
				t.Error("nothing blocked the server")
			}
			undo()
			drain(t, s, 0)
		})
	}
}

func TestSetTarget(t *testing.T) {
	one, two := newRig(t, nil), newRig(t, nil)
	check(t, one.health)
	one.server.Stop()
	until(t, "closed by the client too", func() bool { return one.proxy.Stats().Open == 0 })
	one.proxy.SetTarget(two.proxy.Addr().String()) // one proxy after the other
	check(t, one.health)
	if n := two.proxy.Stats().Connections; n != 1 {
		t.Errorf("%d connections to the new target", n)
	}
}
