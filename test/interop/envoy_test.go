package interop

import (
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// envoy is a running Envoy with what calls through it.
type envoy struct {
	*interoptest.Envoy

	mu    sync.Mutex // guards conns
	conns map[string]*grpc.ClientConn
}

// startEnvoy starts one as a node of the default namespace, until the test ends.
func startEnvoy(t *testing.T, o bootstrap.Options) *envoy {
	t.Helper()
	e := &envoy{Envoy: interoptest.StartEnvoy(t, o), conns: make(map[string]*grpc.ClientConn)}
	t.Cleanup(func() {
		for _, conn := range e.conns {
			conn.Close()
		}
	})
	return e
}

// call makes a gRPC call through the outbound listener, by authority.
func (e *envoy) call(service string) (string, error) {
	conn, err := e.conn(service)
	if err != nil {
		return "", err
	}
	return interoptest.UnaryCall(conn)
}

func (e *envoy) conn(service string) (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn := e.conns[service]; conn != nil {
		return conn, nil
	}
	name, port := interoptest.NameAndPort(service)
	conn, err := grpc.NewClient("passthrough:///"+e.Outbound, grpc.WithAuthority(name+".default:"+port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		e.conns[service] = conn
	}
	return conn, err
}
