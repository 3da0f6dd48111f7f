package http2

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// startGRPC serves the interop service until the test ends.
func startGRPC(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		wg.Wait()
	})
	return l.Addr().String()
}

func dialGRPC(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// TestGRPCInterop runs the cases of gRPC's interop client that need no credentials
// (interop-test-descriptions.md of gRPC); they end the process when they fail.
func TestGRPCInterop(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startGRPC(t), startGRPC(t), startGRPC(t))
	cc := dialGRPC(t, rig.addr)
	client := testgrpc.NewTestServiceClient(cc)
	for name, do := range map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall,
		"client_streaming": interop.DoClientStreaming, "server_streaming": interop.DoServerStreaming,
		"ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer,
		"cancel_after_begin":         interop.DoCancelAfterBegin, "cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"custom_metadata": interop.DoCustomMetadata, "status_code_and_message": interop.DoStatusCodeAndMessage,
		"special_status_message": interop.DoSpecialStatusMessage,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				do(t.Context(), client)
			}
		})
	}
	t.Run("unimplemented_method", func(t *testing.T) { interop.DoUnimplementedMethod(t.Context(), cc) })
	t.Run("unimplemented_service", func(t *testing.T) {
		interop.DoUnimplementedService(t.Context(), testgrpc.NewUnimplementedServiceClient(cc))
	})
}

// TestGRPCBulk sends much on several streams of one connection at once, both ways.
func TestGRPCBulk(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startGRPC(t), startGRPC(t))
	client := testgrpc.NewTestServiceClient(dialGRPC(t, rig.addr))
	payload := &testgrpc.Payload{Body: bytes.Repeat([]byte("x"), 300_000)}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			stream, err := client.FullDuplexCall(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for range 10 {
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{
					ResponseParameters: []*testgrpc.ResponseParameters{{Size: 500_000}}, Payload: payload,
				}); err != nil {
					t.Error(err)
					return
				}
				got, err := stream.Recv()
				if err != nil || len(got.Payload.Body) != 500_000 {
					t.Error(err)
					return
				}
			}
			_ = stream.CloseSend()
		})
	}
	wg.Wait()
}

// TestGRPCUnreachable: an error of ours is a status without a message.
func TestGRPCUnreachable(t *testing.T) {
	gone := testaddr.Refused(t)
	rig := startRelay(t, &relayRig{}, gone)
	_, err := testgrpc.NewTestServiceClient(dialGRPC(t, rig.addr)).EmptyCall(t.Context(), &testgrpc.Empty{})
	if status.Code(err) != codes.Unavailable || !bytes.Contains([]byte(err.Error()), []byte("connection: connect_refused: "+gone)) {
		t.Fatal(err)
	}
	// With another endpoint to go to, nobody notices.
	rig = startRelay(t, &relayRig{attempts: 4}, gone, startGRPC(t))
	client := testgrpc.NewTestServiceClient(dialGRPC(t, rig.addr))
	for range 10 {
		if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
}
