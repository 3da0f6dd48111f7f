package scenario

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	paths, err := filepath.Glob("testdata/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			xdstest.RunTranscript(t, path, func(t testing.TB) xdstest.System { return start(t, snapshot.Config{}) })
		})
	}
}

// start makes the real store and server, with the default deadlines.
func start(t testing.TB, c snapshot.Config) xdstest.System {
	store := snapshot.New(c)
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
		Audit: func(args []string) string {
			nodes, err := server.Nodes(t.Context(), "")
			if err != nil {
				return err.Error() + "\n"
			}
			return describe(nodes, len(args) > 0 && args[0] == "history")
		},
	}
}

// describe prints what matters of an audit, without times and hashes.
func describe(nodes []ack.Node, history bool) string {
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s %s%s\n", n.ID, n.State, reason(n.Reason))
		if n.Resets > 0 {
			fmt.Fprintf(&b, "  resets %d\n", n.Resets)
		}
		for _, t := range n.Types {
			fmt.Fprintf(&b, "  %s subscribed=%d %s", t.Type, t.Subscribed, t.State)
			if (t.HeldVersion == t.CurrentVersion) != (t.Behind == 0) {
				fmt.Fprintf(&b, " VERSIONS DISAGREE WITH behind=%d", t.Behind)
			}
			for _, r := range t.BehindResources {
				fmt.Fprintf(&b, " behind:%s", r.Name)
			}
			if t.Nack != nil {
				fmt.Fprintf(&b, " nack:%q%v", t.Nack.Message, t.Nack.Resources)
			}
			b.WriteByte('\n')
		}
		if history {
			for _, e := range n.History {
				fmt.Fprintf(&b, "  - %s\n", strings.Join(strings.Fields(e.Event+" "+e.Type+" "+e.Reason), " "))
			}
		}
	}
	return b.String()
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
