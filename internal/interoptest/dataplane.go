package interoptest

import (
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// Dataplane is our data plane as a process.
type Dataplane struct {
	*Process
	// Admin and Outbound are its addresses.
	Admin, Outbound string
	// Listens are the addresses that lead to one cluster, by its name.
	Listens map[string]string
}

// StartDataplane builds the program, with the race detector where the test has
// it, and runs it as a node of the default namespace until the test ends, with a
// listener for each cluster: its name → http or tcp. It is ready by then; a data
// race that it reports fails the test.
func StartDataplane(t testing.TB, xdsAddress string, clusters map[string]string, flags ...string) *Dataplane {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "dataplane")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", binary, "github.com/freshmesh/freshmesh/cmd/dataplane")...)
	// Nested modules have their own idea of what the program needs.
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/freshmesh/freshmesh").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	build.Dir = strings.TrimSpace(string(root))
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, output)
	}
	d := &Dataplane{Admin: testaddr.Free(t, "127.0.0.1"), Outbound: testaddr.Free(t, "127.0.0.1"), Listens: map[string]string{}}
	args := []string{
		"--node-id", "dataplane-1", "--namespace", "default", "--xds-address", xdsAddress,
		"--admin-address", d.Admin, "--outbound-address", d.Outbound, "--health-address", "",
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		d.Listens[name] = testaddr.Free(t, "127.0.0.1")
		args = append(args, "--listen", d.Listens[name]+"="+name+","+clusters[name])
	}
	d.Process = Start(t, exec.Command(binary, append(args, flags...)...))
	t.Cleanup(func() {
		if text := d.Log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("the data plane wrote:\n%s", Tail(text, 200))
		}
	})
	testwait.Within(t, StartTime, "the data plane ready", func() bool {
		resp, err := http.Get("http://" + d.Admin + "/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	return d
}
