package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a gRPC backend that answers its name.
type echo struct {
	grpc_testing.UnimplementedTestServiceServer
	name string
}

func (e echo) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{ServerId: e.name}, nil
}

func startEcho(t *testing.T, name string) (address string) {
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
	return listener.Addr().String()
}

// dialXDS gives a grpc-go client of a target xds:///… that asks the control plane at address.
func dialXDS(t *testing.T, address, target string) grpc_testing.TestServiceClient {
	t.Helper()
	bootstrap := fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "grpc-go-1", "metadata": {"namespace": "default"}}}`, address)
	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_testing.NewTestServiceClient(conn)
}

func call(t *testing.T, client grpc_testing.TestServiceClient) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	response, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	return response.GetServerId(), err
}

// grpc-go resolves a service by its xds name, calls it, follows a change of its
// endpoints, and sees it go and come back.
func TestGRPCGo(t *testing.T) {
	one, two := startEcho(t, "one"), startEcho(t, "two")
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", one)
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	client := dialXDS(t, control.XDS, "xds:///echo.default.svc.cluster.local:8080")

	answers := func(name string) func() bool {
		return func() bool {
			got, err := call(t, client)
			return err == nil && got == name
		}
	}
	meshtest.Until(t, 10*time.Second, "answered by one", answers("one"))
	meshtest.Until(t, 5*time.Second, "fresh in the audit", func() bool {
		nodes := control.Audit(t).Nodes
		return len(nodes) == 1 && nodes[0].ID == "grpc-go-1" && nodes[0].State == ack.Fresh &&
			strings.HasPrefix(nodes[0].Client, "gRPC Go") && nodes[0].Protocol == "sotw" && len(nodes[0].Types) == 4
	})

	manifests.Service("echo", two)
	meshtest.Until(t, 5*time.Second, "moved to two", answers("two"))

	if err := os.Remove(filepath.Join(manifests.Dir, "echo.yaml")); err != nil {
		t.Fatal(err)
	}
	meshtest.Until(t, 5*time.Second, "gone", func() bool {
		_, err := call(t, client)
		return status.Code(err) == codes.Unavailable
	})

	manifests.Service("echo", one, two)
	meshtest.Until(t, 10*time.Second, "back", func() bool {
		_, err := call(t, client)
		return err == nil
	})
}
