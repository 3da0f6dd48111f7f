package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
)

// callTimeout bounds one call.
const callTimeout = 3 * time.Second

const (
	// soon is how long anything may take that nothing stands in the way of. It is
	// long, for busy machines, and shorter than the 15 s after which Envoy and gRPC
	// clients give up waiting for a resource.
	soon = 10 * time.Second
	// startTime is how long a client may take from its start to its first answered call.
	startTime = time.Minute
)

// client is one real client of a control plane.
type client struct {
	// name is its node id.
	name string
	// agent is how its name begins in the audit.
	agent string
	// protocol is delta or sotw.
	protocol string
	// call calls a service of the default namespace once, NAME for port 8080 or
	// NAME:PORT, and gives the name of the backend that answered.
	call func(service string) (string, error)
	// envoy is nil for gRPC clients.
	envoy *envoy
}

// starter starts a client of the control plane at an address.
type starter func(t *testing.T, xdsAddress string) client

// everyClient are all the clients, by name.
var everyClient = []starter{envoyDelta, envoySotW, grpcGo, grpcPython, grpcNode}

func startAll(t *testing.T, xdsAddress string) []client {
	t.Helper()
	var all []client
	for _, s := range everyClient {
		all = append(all, s(t, xdsAddress))
	}
	return all
}

// target is a service's name for gRPC.
func target(service string) string { return "xds:///" + clusterName(service) }

// clusterName is the name of a service's four resources. The service may have
// its port with it, which is 8080 otherwise.
func clusterName(service string) string {
	name, port := nameAndPort(service)
	return name + ".default.svc.cluster.local:" + port
}

func nameAndPort(service string) (name, port string) {
	if name, port, ok := strings.Cut(service, ":"); ok {
		return name, port
	}
	return service, "8080"
}

func grpcBootstrap(t *testing.T, id, xdsAddress string) []byte {
	t.Helper()
	text, err := bootstrap.GRPC(bootstrap.Options{NodeID: id, XDSAddress: xdsAddress, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeFile(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// grpcGo is grpc-go, in this process.
func grpcGo(t *testing.T, xdsAddress string) client {
	t.Helper()
	resolver, err := xds.NewXDSResolverWithConfigForTesting(grpcBootstrap(t, "grpc-go", xdsAddress))
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
				if conn, err = grpc.NewClient(target(service), grpc.WithResolvers(resolver),
					grpc.WithTransportCredentials(insecure.NewCredentials())); err == nil {
					conns[service] = conn
				}
			}
		}
		<-answered
		return conn, err
	}
	return client{name: "grpc-go", agent: "gRPC Go", protocol: "sotw", call: func(service string) (string, error) {
		conn, err := dial(service)
		if err != nil {
			return "", err
		}
		return unaryCall(conn)
	}}
}

func unaryCall(conn *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := grpc_testing.NewTestServiceClient(conn).UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	return response.GetServerId(), err
}

// grpcPython is grpcio.
func grpcPython(t *testing.T, xdsAddress string) client {
	t.Helper()
	dir := pythonTool.need(t)
	file := writeFile(t, "grpc.json", grpcBootstrap(t, "grpc-python", xdsAddress))
	h := startHelper(t, file, []string{"PYTHONPATH=" + dir}, "python3", filepath.Join("clients", "python", "client.py"))
	return client{name: "grpc-python", agent: "gRPC C-core", protocol: "sotw", call: func(service string) (string, error) {
		return h.call(target(service))
	}}
}

// grpcNode is @grpc/grpc-js with @grpc/grpc-js-xds.
func grpcNode(t *testing.T, xdsAddress string) client {
	t.Helper()
	dir := nodeTool.need(t)
	file := writeFile(t, "grpc.json", grpcBootstrap(t, "grpc-node", xdsAddress))
	h := startHelper(t, file, []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}, "node", filepath.Join("clients", "node", "client.js"))
	return client{name: "grpc-node", agent: "gRPC Node", protocol: "sotw", call: func(service string) (string, error) {
		return h.call(target(service))
	}}
}

func envoyDelta(t *testing.T, xdsAddress string) client {
	t.Helper()
	return envoyClient(t, xdsAddress, "envoy-delta", false)
}

func envoySotW(t *testing.T, xdsAddress string) client {
	t.Helper()
	return envoyClient(t, xdsAddress, "envoy-sotw", true)
}

func envoyClient(t *testing.T, xdsAddress, name string, sotw bool) client {
	t.Helper()
	e := startEnvoy(t, bootstrap.Options{NodeID: name, XDSAddress: xdsAddress, SotW: sotw})
	protocol := "delta"
	if sotw {
		protocol = "sotw"
	}
	return client{name: name, agent: "envoy 1.40.0", protocol: protocol, call: e.call, envoy: e}
}

// envoyBinary is where the package keeps it.
func envoyBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(envoyTool.need(t), "envoy", "_bin", "envoy")
	if err := exec.Command(path, "--version").Run(); err != nil {
		t.Fatalf("%s --version: %v", path, err)
	}
	return path
}
