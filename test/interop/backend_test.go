package interop

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
)

// echo is a gRPC backend that answers its name.
type echo struct {
	grpc_testing.UnimplementedTestServiceServer
	name string
}

// UnaryCall implements grpc.testing.TestService.
func (e echo) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{ServerId: e.name}, nil
}

// startEcho runs one until the test ends, or until it is stopped.
func startEcho(t *testing.T, name string) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, echo{name: name})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("backend %s: %v", name, err)
		}
	})
	return listener.Addr().String(), server.Stop
}
