package interoptest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
)

// CallTimeout bounds one call.
const CallTimeout = 3 * time.Second

// Target is a service's name for gRPC.
func Target(service string) string { return "xds:///" + ClusterName(service) }

// ClusterName is the name of a service's four resources. The service may have
// its port with it, which is 8080 otherwise.
func ClusterName(service string) string {
	name, port := NameAndPort(service)
	return name + ".default.svc.cluster.local:" + port
}

// NameAndPort splits NAME or NAME:PORT; the port is 8080 where none is given.
func NameAndPort(service string) (name, port string) {
	if name, port, ok := strings.Cut(service, ":"); ok {
		return name, port
	}
	return service, "8080"
}

// GRPCBootstrap gives the bootstrap of a gRPC client of the default namespace.
func GRPCBootstrap(t testing.TB, id, xdsAddress string) []byte {
	t.Helper()
	text, err := bootstrap.GRPC(bootstrap.Options{NodeID: id, XDSAddress: xdsAddress, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// GRPCGo is grpc-go, in this process, as a node, until the test ends. What comes
// back calls a service of the default namespace once, NAME for port 8080 or
// NAME:PORT, and gives the name of the backend that answered; it is safe for
// concurrent use.
func GRPCGo(t testing.TB, id, xdsAddress string) func(service string) (string, error) {
	t.Helper()
	resolver, err := xds.NewXDSResolverWithConfigForTesting(GRPCBootstrap(t, id, xdsAddress))
	if err != nil {
		t.Fatal(err)
	}
	conns := map[string]*grpc.ClientConn{}
	ask := make(chan func())
	done := make(chan struct{})
	go func() { // owns conns
		defer close(done)
		for f := range ask {
			f()
		}
		for _, conn := range conns {
			conn.Close()
		}
	}()
	t.Cleanup(func() { close(ask); <-done })
	dial := func(service string) (conn *grpc.ClientConn, err error) {
		answered := make(chan struct{})
		ask <- func() {
			defer close(answered)
			if conn = conns[service]; conn == nil {
				if conn, err = grpc.NewClient(Target(service), grpc.WithResolvers(resolver),
					grpc.WithTransportCredentials(insecure.NewCredentials())); err == nil {
					conns[service] = conn
				}
			}
		}
		<-answered
		return conn, err
	}
	return func(service string) (string, error) {
		conn, err := dial(service)
		if err != nil {
			return "", err
		}
		return UnaryCall(conn)
	}
}

// UnaryCall makes one call, and gives the name of the backend that answered.
func UnaryCall(conn *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	response, err := grpc_testing.NewTestServiceClient(conn).UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	return response.GetServerId(), err
}
