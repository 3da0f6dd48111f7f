package conformance

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// cases are those of grpc-go's interop client, without the seven that need a
// cloud's credentials; many go to several servers.
var cases = []struct {
	name string
	many bool
}{
	{"empty_unary", true},
	{"large_unary", true},
	{"client_streaming", true},
	{"server_streaming", true},
	{"ping_pong", true},
	{"empty_stream", true},
	{"timeout_on_sleeping_server", true},
	{"cancel_after_begin", true},
	{"cancel_after_first_response", true},
	{"status_code_and_message", true},
	{"special_status_message", true},
	{"custom_metadata", true},
	{"unimplemented_method", true},
	{"unimplemented_service", true},
	{"pick_first_unary", false},
	{"rpc_soak", true},
	{"channel_soak", true},
	{"orca_per_rpc", true},
	{"orca_oob", false}, // reports are of one server
}

// TestGRPC runs every case through the data plane.
func TestGRPC(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	var servers []string
	for range 3 {
		address := testaddr.Free(t, "127.0.0.1")
		_, port, _ := net.SplitHostPort(address) // ours
		interoptest.Start(t, exec.Command(filepath.Join(bin, "server"), "--port", port))
		testwait.Within(t, runTime, "the server up", func() bool {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
		servers = append(servers, address)
	}
	d := mesh(t, map[string]meshtest.Service{
		"many":  {AppProtocol: "grpc", Addresses: servers},
		"one":   {AppProtocol: "grpc", Addresses: servers[:1]},
		"named": {AppProtocol: "grpc", Addresses: []string{named(t)}},
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			service := "one"
			if c.many {
				service = "many"
			}
			if c.name == "pick_first_unary" {
				service = "named"
			}
			host, port, _ := net.SplitHostPort(d.Listens[interoptest.ClusterName(service)])
			args := []string{
				"--server_host", host, "--server_port", port, "--test_case", c.name,
				"--soak_iterations", "30", "--soak_num_threads", "3", "--soak_per_iteration_max_acceptable_latency_ms", "20000", "--soak_overall_timeout_seconds", "50",
			}
			if strings.HasPrefix(c.name, "orca") {
				args = append(args, "--service_config_json", `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`)
			}
			run(t, exec.Command(filepath.Join(bin, "client"), args...))
		})
	}
}

// withName is grpc-go's test server, which tells its name where that is asked for; the one of grpc-go does not.
type withName struct{ grpc_testing.TestServiceServer }

func (s withName) UnaryCall(ctx context.Context, q *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	answer, err := s.TestServiceServer.UnaryCall(ctx, q)
	if err == nil && q.GetFillServerId() {
		answer.ServerId = "named"
	}
	return answer, err
}

func named(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(s, withName{interop.NewTestServer()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}
