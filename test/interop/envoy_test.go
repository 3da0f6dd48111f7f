package interop

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// envoy is a running Envoy.
type envoy struct {
	// admin and outbound are its addresses.
	admin, outbound string
	log             *meshtest.Log

	mu    sync.Mutex // guards conns
	conns map[string]*grpc.ClientConn
}

// startEnvoy starts one as a node of the default namespace, on ports of its own, until the test ends.
func startEnvoy(t *testing.T, o bootstrap.Options) *envoy {
	t.Helper()
	binary := envoyBinary(t)
	e := &envoy{outbound: freeAddress(t), conns: make(map[string]*grpc.ClientConn)}
	o.Namespace, o.AdminAddress, o.OutboundAddress = "default", "127.0.0.1:0", e.outbound
	text, err := bootstrap.Envoy(o)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "envoy.yaml", text)
	adminFile := filepath.Join(filepath.Dir(file), "admin")
	e.log = start(t, exec.Command(binary, "--config-path", file, "--admin-address-path", adminFile,
		"--concurrency", "1", "--disable-hot-restart", "--log-level", "info"))
	meshtest.Until(t, startTime, "Envoy's admin up", func() bool {
		content, err := os.ReadFile(adminFile)
		e.admin = string(content)
		return err == nil && strings.Contains(e.admin, ":")
	})
	t.Cleanup(func() {
		for _, conn := range e.conns {
			conn.Close()
		}
	})
	return e
}

// freeAddress gives an address that nobody listens on now. Envoy binds with
// SO_REUSEPORT, so it would share a taken one without a word.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// call makes a gRPC call through the outbound listener, by authority.
func (e *envoy) call(service string) (string, error) {
	conn, err := e.conn(service)
	if err != nil {
		return "", err
	}
	return unaryCall(conn)
}

func (e *envoy) conn(service string) (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn := e.conns[service]; conn != nil {
		return conn, nil
	}
	name, port := nameAndPort(service)
	conn, err := grpc.NewClient("passthrough:///"+e.outbound, grpc.WithAuthority(name+".default:"+port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		e.conns[service] = conn
	}
	return conn, err
}

// stat gives one of Envoy's counters or gauges, "" when there is none.
func (e *envoy) stat(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(meshtest.Get(t, e.admin, "/stats?filter=^"+name+"$")) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
