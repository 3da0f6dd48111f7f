package http2

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// ends ends each call at once, before its client has.
type ends struct {
	testgrpc.UnimplementedTestServiceServer
}

func (ends) FullDuplexCall(grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	return status.Error(codes.OutOfRange, "that is all")
}

// refuses answers every request with an error of ours.
type refuses struct{}

func (refuses) Request(Ticket, *message.Request) (Decider, Decision) {
	return &rigDecider{rig: &relayRig{}}, Decision{Error: &upstream.Error{Reason: upstream.NoEndpoints, Err: errors.New("none")}}
}

// TestCallsThatEndFirst: a gRPC client resets a call that has been ended before it had said all. That is the end of a call as any other, and no flood.
func TestCallsThatEndFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, ends{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		wg.Wait()
	})
	for name, c := range map[string]struct {
		h    Handler
		want codes.Code
	}{
		"by the endpoint": {nil, codes.OutOfRange},
		"by the proxy":    {refuses{}, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, &relayRig{handler: c.h}, l.Addr().String())
			client := testgrpc.NewTestServiceClient(dialGRPC(t, r.addr))
			for i := range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				call, err := client.FullDuplexCall(ctx)
				if err == nil {
					_, err = call.Recv()
				}
				cancel()
				if got := status.Code(err); got != c.want || errors.Is(err, context.Canceled) {
					t.Fatalf("call %d: %v", i, err)
				}
			}
			if n := r.abused(RapidReset); n > 0 {
				t.Errorf("%d connections were closed for rapid resets", n)
			}
		})
	}
}

// TestTrailersAfterTheAnswer: the trailers of requests that were answered early and reset meanwhile are no misbehaviour (RFC 9113 section 5.1).
func TestTrailersAfterTheAnswer(t *testing.T) {
	r := startRelay(t, &relayRig{handler: replies("no")}, "127.0.0.1:1")
	c := dialRaw(t, r.addr)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	for i := range uint32(1000) {
		id := 2*i + 1
		_ = c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, EndHeaders: true, BlockFragment: block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/"),
		})
		if n := c.whole(t, id); n != len("no") {
			t.Fatalf("%d bytes", n)
		}
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: block("sum", "1")})
	}
}
