package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

// Explain implements admin.Explainer.
func (s *Server) Explain(ctx context.Context, node mesh.NodeID, cluster, endpoint string) (history.Story, error) {
	f := history.Facts{
		Instance: s.xds.Instance(), Time: time.Now(), Node: node, Cluster: cluster, Endpoint: normal(endpoint),
	}
	// What the node says of itself comes first: its namespace tells which of
	// several clusters a short name means.
	var names []mesh.ResourceName
	told, known, err := s.xds.Tell(ctx, node, func(v snapshot.View) []mesh.ResourceName {
		f.Cluster, f.Candidates = s.resolve(v, cluster)
		names = namesOf(f.Cluster)
		return names
	})
	if err != nil {
		return history.Story{}, fmt.Errorf("ask the streams: %w", err)
	}
	s.loop.awaitHistory(ctx)
	view := s.store.View(mesh.View{})
	if names == nil { // no stream was asked
		f.Cluster, f.Candidates = s.resolve(view, cluster)
		names = namesOf(f.Cluster)
	}
	f.Generation = view.Generation()
	f.Entries, f.Floor = s.loop.history.Of(names...)
	for _, n := range names {
		f.Exists = f.Exists || view.Version(n.Type, mesh.Intern(n.Name)) != ""
	}
	if b := view.Body(mesh.TypeEndpoint, mesh.Intern(f.Cluster)); b != nil {
		f.Assignment = b.Value()
	}
	if f.Known = known; known {
		s.tellFate(&told.Node)
		f.State, f.Deliveries, f.Gone, f.Held = told.Node, told.Deliveries, told.Gone, held(told.Holdings)
	}
	return history.Tell(f), nil
}

func namesOf(cluster string) []mesh.ResourceName {
	names := make([]mesh.ResourceName, 0, len(clusterTypes))
	for _, t := range clusterTypes {
		names = append(names, mesh.ResourceName{Type: t, Name: cluster})
	}
	return names
}

func held(holdings []xds.Holding) []history.Held {
	out := make([]history.Held, 0, len(holdings))
	for _, h := range holdings {
		one := history.Held{ResourceName: h.ResourceName, ConnectedAt: h.ConnectedAt, ResourceState: h.ResourceState, Current: h.Current}
		if h.Body != nil {
			one.Body = h.Body.Value()
		}
		out = append(out, one)
	}
	return out
}

// normal writes IP:PORT as netip does; other text stays as it is.
func normal(endpoint string) string {
	if a, err := netip.ParseAddrPort(endpoint); err == nil {
		return a.String()
	}
	return endpoint
}

// maxCandidates bounds the clusters that a story offers for a short name.
const maxCandidates = 20

// resolve gives the full name of a cluster: of one that exists or existed within
// the history, by its name or by the beginning of it, "echo", "echo.default",
// with or without a port. Where several fit, those of the node's own namespace
// count, and if it is still not one, the name stays as asked and they are the candidates.
func (s *Server) resolve(v snapshot.View, asked string) (name string, candidates []string) {
	if v.Body(mesh.TypeCluster, mesh.Intern(asked)) != nil || v.Body(mesh.TypeEndpoint, mesh.Intern(asked)) != nil {
		return asked, nil
	}
	known := s.loop.history.Names(mesh.TypeCluster)
	if slices.Contains(known, asked) {
		return asked, nil
	}
	for _, b := range v.All(mesh.TypeCluster) {
		known = append(known, b.Name.Value())
	}
	slices.Sort(known)
	fits := slices.DeleteFunc(slices.Compact(known), func(full string) bool { return !shortFor(asked, full) })
	if own := v.Namespace(); len(fits) > 1 && own != "" {
		if mine := slices.DeleteFunc(slices.Clone(fits), func(full string) bool { return !inNamespace(full, own) }); len(mine) > 0 {
			fits = mine
		}
	}
	if len(fits) == 1 {
		return fits[0], nil
	}
	return asked, fits[:min(len(fits), maxCandidates)]
}

// shortFor tells whether a name is the beginning of a cluster's, label by label, and of its port.
func shortFor(short, full string) bool {
	host, port, _ := strings.Cut(short, ":")
	fullHost, fullPort, _ := strings.Cut(full, ":")
	return host != "" && cmp.Or(port, fullPort) == fullPort && (fullHost == host || strings.HasPrefix(fullHost, host+"."))
}

// inNamespace tells whether a service's name is of a namespace.
func inNamespace(full, namespace string) bool {
	_, rest, _ := strings.Cut(full, ".")
	return strings.HasPrefix(rest, namespace+".")
}
