package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) { xdstest.RunTranscript(t, path, start) })
}

// start makes the real store and server, with the default deadlines.
func start(t testing.TB) xdstest.System {
	t.Helper()
	store := snapshot.New(snapshot.Config{})
	server := xds.New(xds.Config{
		Store: store, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		Ready: func() error { return nil }, Logger: hclog.NewNullLogger(),
		Registerer: prometheus.NewRegistry(), Propagation: xds.Propagation(),
	})
	t.Cleanup(server.Shutdown)
	return xdstest.System{
		Register: server.Register,
		Options:  xds.ServerOptions(),
		Publish:  func(u mesh.Update) { store.Publish(u, time.Now()) },
		Audit: func(words []string) string {
			nodes, err := server.Nodes(t.Context(), "")
			if err != nil {
				t.Fatalf("audit: %v", err)
			}
			history := slices.Contains(words, "history")
			words = slices.DeleteFunc(words, func(w string) bool { return w == "history" })
			return describe(t, nodes, words, history)
		},
	}
}

// describe prints what matters of an audit of the named nodes, or of all,
// without times and hashes.
func describe(t testing.TB, nodes []ack.Node, names []string, history bool) string {
	t.Helper()
	var b strings.Builder
	for _, n := range nodes {
		if len(names) > 0 && !slices.Contains(names, string(n.ID)) {
			continue
		}
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.ID, n.State, n.Reason)))
		if n.Resets > 0 {
			fmt.Fprintf(&b, "  resets %d\n", n.Resets)
		}
		for _, ts := range n.Types {
			fmt.Fprintln(&b, "  "+describeType(t, n.ID, ts))
		}
		if history {
			for _, e := range n.History {
				fmt.Fprintln(&b, "  - "+strings.Join(strings.Fields(e.Event+" "+e.Type+" "+e.Reason), " "))
			}
		}
	}
	return b.String()
}

func describeType(t testing.TB, node mesh.NodeID, ts ack.TypeState) string {
	t.Helper()
	var behind []string
	for _, r := range ts.BehindResources {
		behind = append(behind, r.Name)
	}
	if (ts.Behind == 0) != (ts.HeldVersion == ts.CurrentVersion) || ts.Behind != len(behind) {
		t.Errorf("%s %s: behind %d, %q, held %s, current %s do not agree", node, ts.Type, ts.Behind, behind, ts.HeldVersion, ts.CurrentVersion)
	}
	out := fmt.Sprintf("%s %s subscribed=%d", ts.Type, ts.State, ts.Subscribed)
	if len(behind) > 0 {
		out += " behind=" + strings.Join(behind, ",")
	}
	if ts.Nack != nil {
		out += " refused=" + strings.Join(ts.Nack.Resources, ",") + ": " + ts.Nack.Message
	}
	return out
}
