package interop

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
)

const (
	// soon is how long anything may take that nothing stands in the way of. It is
	// long, for busy machines, and shorter than the 15 s after which Envoy and gRPC
	// clients give up waiting for a resource.
	soon = 10 * time.Second
	// startTime is how long a client may take from its start to its first answered call.
	startTime = interoptest.StartTime
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

// grpcGo is grpc-go, in this process.
func grpcGo(t *testing.T, xdsAddress string) client {
	t.Helper()
	return client{name: "grpc-go", agent: "gRPC Go", protocol: "sotw", call: interoptest.GRPCGo(t, "grpc-go", xdsAddress)}
}

// grpcPython is grpcio.
func grpcPython(t *testing.T, xdsAddress string) client {
	t.Helper()
	dir := interoptest.PythonTool.Need(t)
	file := interoptest.WriteFile(t, "grpc.json", interoptest.GRPCBootstrap(t, "grpc-python", xdsAddress))
	h := startHelper(t, file, []string{"PYTHONPATH=" + dir}, "python3", interoptest.ClientFile(t, "python", "client.py"))
	return client{name: "grpc-python", agent: "gRPC C-core", protocol: "sotw", call: func(service string) (string, error) {
		return h.call(interoptest.Target(service))
	}}
}

// grpcNode is @grpc/grpc-js with @grpc/grpc-js-xds.
func grpcNode(t *testing.T, xdsAddress string) client {
	t.Helper()
	dir := interoptest.NodeTool.Need(t)
	file := interoptest.WriteFile(t, "grpc.json", interoptest.GRPCBootstrap(t, "grpc-node", xdsAddress))
	h := startHelper(t, file, []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}, "node", interoptest.ClientFile(t, "node", "client.js"))
	return client{name: "grpc-node", agent: "gRPC Node", protocol: "sotw", call: func(service string) (string, error) {
		return h.call(interoptest.Target(service))
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
