package interoptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
)

// StartTime is how long a client may take from its start to its first answered call.
const StartTime = time.Minute

// Envoy is a running Envoy.
type Envoy struct {
	*Process
	// Admin and Outbound are its addresses.
	Admin, Outbound string
}

// StartEnvoy starts one as a node of the default namespace, on ports of its own, until the test ends.
func StartEnvoy(t testing.TB, o bootstrap.Options) *Envoy {
	t.Helper()
	return StartEnvoyWorkers(t, o, 1)
}

// StartEnvoyWorkers is StartEnvoy with a number of worker threads.
func StartEnvoyWorkers(t testing.TB, o bootstrap.Options, workers int) *Envoy {
	t.Helper()
	binary := EnvoyBinary(t)
	e := &Envoy{Outbound: testaddr.Free(t, "127.0.0.1")}
	o.Namespace, o.AdminAddress, o.OutboundAddress = "default", "127.0.0.1:0", e.Outbound
	text, err := bootstrap.Envoy(o)
	if err != nil {
		t.Fatal(err)
	}
	file := WriteFile(t, "envoy.yaml", text)
	adminFile := filepath.Join(filepath.Dir(file), "admin")
	e.Process = Start(t, exec.Command(binary, "--config-path", file, "--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(workers), "--disable-hot-restart", "--log-level", "info"))
	testwait.Within(t, StartTime, "Envoy's admin up", func() bool {
		content, err := os.ReadFile(adminFile)
		e.Admin = string(content)
		return err == nil && strings.Contains(e.Admin, ":")
	})
	return e
}

// Stat gives one of Envoy's counters or gauges, "" when there is none.
func (e *Envoy) Stat(t testing.TB, name string) string {
	t.Helper()
	for line := range strings.Lines(meshtest.Get(t, e.Admin, "/stats?filter=^"+name+"$")) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// EnvoyBinary is where the package keeps it.
func EnvoyBinary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(EnvoyTool.Need(t), "envoy", "_bin", "envoy")
	if err := exec.Command(path, "--version").Run(); err != nil {
		t.Fatalf("%s --version: %v", path, err)
	}
	return path
}

// WriteFile writes a file into a directory that ends with the test.
func WriteFile(t testing.TB, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
