package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin/envoyaudit"
	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Inspected is what a running Envoy has, against what it should have.
type Inspected struct {
	// Admin is the URL that was asked.
	Admin string `json:"admin"`
	envoyaudit.Report
}

// envoyAnswer is what came of one Envoy; err says why it could not be compared.
type envoyAnswer struct {
	admin  string
	report envoyaudit.Report
	err    error
}

const (
	// looks is how often an Envoy is looked at before a difference counts: what
	// is gone at the next look was a change on its way.
	looks = 3
	// betweenLooks lies between two of them.
	betweenLooks = 300 * time.Millisecond
)

// inspect compares an Envoy with what the servers say of its node.
func (c *client) inspect(ctx context.Context, o Options, admin string) (envoyaudit.Report, error) {
	for look := 1; ; look++ {
		report, err := c.look(ctx, o, admin)
		if err != nil || report.InEffect || look == looks {
			return report, err
		}
		timer := time.NewTimer(betweenLooks)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return report, nil
		}
	}
}

func (c *client) look(ctx context.Context, o Options, admin string) (envoyaudit.Report, error) {
	dump, err := c.Get(ctx, admin+"/config_dump?include_eds")
	if err != nil {
		return envoyaudit.Report{}, err
	}
	clusters, err := c.Get(ctx, admin+"/clusters?format=json")
	if err != nil {
		return envoyaudit.Report{}, err
	}
	running, err := envoyaudit.Read(dump, clusters)
	if err != nil {
		return envoyaudit.Report{}, fmt.Errorf("answer is no Envoy's: %w", err)
	}
	running.Node = cmp.Or(o.Node, running.Node)
	want, err := c.wanted(ctx, o.Servers, running.Node)
	if err != nil {
		return envoyaudit.Report{}, err
	}
	return envoyaudit.Compare(want, running), nil
}

// wanted asks the servers until one knows the node: only that which has its
// stream knows what it should have.
func (c *client) wanted(ctx context.Context, servers []string, node mesh.NodeID) (envoyaudit.Wanted, error) {
	var failed []error
	for _, server := range servers {
		want, err := c.resources(ctx, server, node)
		if err == nil {
			return want, nil
		}
		if refused, ok := errors.AsType[*replicas.StatusError](err); !ok || refused.Code != http.StatusNotFound {
			failed = append(failed, fmt.Errorf("%s: %w", server, err))
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return nil, fmt.Errorf("no stream of node %q at %s: what it should have cannot be told", node, strings.Join(servers, ", "))
}

func (c *client) resources(ctx context.Context, server string, node mesh.NodeID) (envoyaudit.Wanted, error) {
	want := envoyaudit.Wanted{}
	for _, kind := range mesh.GeneratedTypes {
		body, err := c.Get(ctx, fmt.Sprintf("%s/resources?type=%s&node=%s", server, kind.Short(), url.QueryEscape(string(node))))
		if err != nil {
			return nil, err
		}
		var answer struct {
			TypeURL   mesh.Type             `json:"typeURL"`
			Resources []envoyaudit.Resource `json:"resources"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, fmt.Errorf("answer has no resources: %w", err)
		}
		if answer.TypeURL != kind {
			return nil, fmt.Errorf("answer has no resources of type %s", kind.Short())
		}
		want[kind] = answer.Resources
	}
	return want, nil
}

// confirm says of the nodes that were inspected whether what they acknowledged is in effect.
func (m *Merged) confirm(envoys []envoyAnswer) {
	active := map[mesh.NodeID]bool{}
	for _, e := range envoys {
		if e.err != nil {
			continue
		}
		m.Envoys = append(m.Envoys, Inspected{e.admin, e.report})
		before, again := active[e.report.Node]
		active[e.report.Node] = e.report.InEffect && (before || !again)
	}
	for i, n := range m.Nodes {
		if is, inspected := active[n.ID]; inspected {
			m.Nodes[i].Active = is
		}
	}
}

// maxDifferences are shown of one Envoy in a table; wide shows all.
const maxDifferences = 20

func writeEnvoys(b *strings.Builder, o Options, m Merged) {
	if len(m.Envoys) > 0 {
		b.WriteString("\n")
	}
	for _, e := range m.Envoys {
		fmt.Fprintf(b, "envoy %s, node %s (%s): ", e.Admin, replicas.Printable(string(e.Node)), replicas.Printable(e.Client))
		if e.InEffect {
			c := e.Compared
			fmt.Fprintf(b, "all is in effect: %s, %s, %s, %s\n", counted(c.Clusters, "cluster"), counted(c.Endpoints, "endpoint"),
				counted(c.Listeners, "listener"), counted(c.Routes, "route configuration"))
			continue
		}
		b.WriteString(counted(len(e.Differences), "difference") + "\n")
		for i, d := range e.Differences {
			if i == maxDifferences && o.Output != Wide {
				fmt.Fprintf(b, "  and %d more\n", len(e.Differences)-i)
				break
			}
			b.WriteString("  " + replicas.Printable(d.String()) + "\n")
		}
	}
}
