package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect dials until somebody listens.
func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

func TestEveryProtocolNamesTheEndpoint(t *testing.T) {
	b := backend{name: "one", address: testaddr.Free(t, "127.0.0.1"), lines: testaddr.Free(t, "127.0.0.1")}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.run(ctx) }()
	conn := connect(t, b.lines)
	fmt.Fprintln(conn, "hello")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if want := fmt.Sprintf("one %s: hello\n", b.lines); err != nil || line != want {
		t.Errorf("lines: %q, %v, want %q", line, err, want)
	}

	for _, version := range []int{1, 2} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == 1)
		transport.Protocols.SetUnencryptedHTTP2(version == 2)
		response, err := (&http.Client{Transport: transport}).Post("http://"+b.address+"/a?b", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		transport.CloseIdleConnections()
		want := fmt.Sprintf("one %s HTTP/%d.%d POST %s/a?b\nbody", b.address, version, 2-version, b.address)
		if err != nil || response.ProtoMajor != version || string(body) != want+"" {
			t.Errorf("HTTP/%d: %q, %v, want %q", version, body, err, want)
		}
	}

	client, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	var header metadata.MD
	answer, err := healthgrpc.NewHealthClient(client).Check(t.Context(), &healthgrpc.HealthCheckRequest{}, grpc.Header(&header))
	if err != nil || answer.GetStatus() != healthgrpc.HealthCheckResponse_SERVING || header.Get(endpointHeader)[0] != "one "+b.address {
		t.Errorf("gRPC: %v, %v, header %v", answer, err, header)
	}
	if services := listed(t, client); !slices.Contains(services, "grpc.health.v1.Health") {
		t.Errorf("reflection tells of %q", services)
	}
	client.Close()

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	conn.Close()
}

// listed asks by reflection what there is to call, as grpcurl does.
func listed(t *testing.T, client *grpc.ClientConn) (names []string) {
	t.Helper()
	stream, err := reflectiongrpc.NewServerReflectionClient(client).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectiongrpc.ServerReflectionRequest{
		MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names
}

func TestAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().String()
	if err := (backend{address: taken}).run(t.Context()); err == nil {
		t.Error("address in use: no error")
	}
	if err := (backend{address: "127.0.0.1:0", lines: taken}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("lines in use: %v", err)
	}
}
