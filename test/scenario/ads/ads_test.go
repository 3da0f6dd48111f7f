package ads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		xdstest.RunTranscript(t, path, start)
	})
}

// start makes a server with the deadlines that xds-server has by default.
func start(t testing.TB) xdstest.System {
	store := snapshot.New(snapshot.Config{})
	server := xds.New(xds.Config{
		Store:       store,
		Policy:      ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		Ready:       func() error { return nil },
		Logger:      hclog.NewNullLogger(),
		Registerer:  prometheus.NewRegistry(),
		Propagation: xds.Propagation(),
	})
	return xdstest.System{
		Register: server.Register,
		Options:  xds.ServerOptions(),
		Publish:  func(u mesh.Update) { store.Publish(u, time.Now()) },
		Audit:    func(nodes []string) string { return audit(t, server, nodes) },
	}
}

// audit prints the audit of the named nodes, or of all: a line for each, and
// one for each of its types.
func audit(t testing.TB, server *xds.Server, names []string) string {
	nodes, err := server.Nodes(t.Context(), "")
	if err != nil {
		t.Fatalf("audit: %v", err)
	}
	var b strings.Builder
	for _, n := range nodes {
		if len(names) > 0 && !slices.Contains(names, string(n.ID)) {
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", n.ID, strings.TrimSpace(string(n.State)+" "+n.Reason))
		for _, ts := range n.Types {
			fmt.Fprintf(&b, "  %s %s subscribed=%d", ts.Type, ts.State, ts.Subscribed)
			var behind []string
			for _, r := range ts.BehindResources {
				behind = append(behind, r.Name)
			}
			if len(behind) > 0 {
				fmt.Fprintf(&b, " behind=%s", strings.Join(behind, ","))
			}
			if (ts.Behind == 0) != (ts.HeldVersion == ts.CurrentVersion) || ts.Behind != len(behind) {
				t.Errorf("%s %s: behind %d, %q, held %s, current %s do not agree", n.ID, ts.Type, ts.Behind, behind, ts.HeldVersion, ts.CurrentVersion)
			}
			if ts.Nack != nil {
				fmt.Fprintf(&b, " refused=%s: %s", strings.Join(ts.Nack.Resources, ","), ts.Nack.Message)
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
