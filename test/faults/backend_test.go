package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// backend answers its name, over HTTP/1.1, HTTP/2 and gRPC.
type backend struct {
	grpc_testing.UnimplementedTestServiceServer
	name, address string
	server        *http.Server
	served        chan error
	once          sync.Once
}

// startBackend starts one on an address; its port may be 0.
func startBackend(t testing.TB, name, address string) *backend {
	t.Helper()
	listener, err := testaddr.Listen(context.Background(), address)
	if err != nil {
		t.Fatalf("backend %s: %v", name, err)
	}
	b := &backend{name: name, address: listener.Addr().String(), served: make(chan error, 1)}
	rpc := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(rpc, b)
	b.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			fmt.Fprint(w, name)
		}),
	}
	b.server.Protocols.SetHTTP1(true)
	b.server.Protocols.SetUnencryptedHTTP2(true)
	go func() { b.served <- b.server.Serve(listener) }()
	t.Cleanup(func() {
		b.kill()
		rpc.Stop()
		if err := <-b.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("backend %s: %v", name, err)
		}
	})
	return b
}

// UnaryCall implements grpc.testing.TestService.
func (b *backend) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{ServerId: b.name}, nil
}

// kill closes the listener and every connection, as the end of a process does.
// When it returns, the address is free.
func (b *backend) kill() { b.once.Do(func() { _ = b.server.Close() }) }
