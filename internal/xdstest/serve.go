package xdstest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Serve runs the services that register adds behind an in-memory listener, and
// gives a connection to them. It is fit for a synctest bubble. Both ends live
// until the test ends.
func Serve(t testing.TB, register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	return ServeMany(t, register, options...)(nil)
}

// Dial gives another connection to a server. wrap may put something between the
// client and its connection; nil: nothing.
type Dial func(wrap func(net.Conn) net.Conn, options ...grpc.DialOption) *grpc.ClientConn

// ServeMany is Serve for several connections.
func ServeMany(t testing.TB, register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) Dial {
	t.Helper()
	listener := bufconn.Listen(256 << 10)
	serve(t, listener, register, options)
	return func(wrap func(net.Conn) net.Conn, options ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		return dial(t, "passthrough:///bufconn", append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := listener.DialContext(ctx)
			if err != nil || wrap == nil {
				return conn, err
			}
			return wrap(conn), nil
		}))...)
	}
}

// ServeTCP is Serve on a loopback port. It is not for a synctest bubble.
func ServeTCP(t testing.TB, register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener, register, options)
	return dial(t, listener.Addr().String())
}

func serve(t testing.TB, listener net.Listener, register func(grpc.ServiceRegistrar), options []grpc.ServerOption) {
	t.Helper()
	server := grpc.NewServer(options...)
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func dial(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return conn
}
