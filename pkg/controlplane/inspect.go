package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

// Audit implements admin.Auditor.
func (s *Server) Audit(ctx context.Context, node mesh.NodeID) (ack.Audit, error) {
	nodes, err := s.xds.Nodes(ctx, node)
	if err != nil {
		return ack.Audit{}, fmt.Errorf("ask the streams: %w", err)
	}
	for i := range nodes {
		s.tellFate(&nodes[i])
	}
	server := s.Status().ServerStatus
	server.AckTimeoutSeconds, server.Digests = s.cfg.Policy.AckTimeout.Seconds(), s.digests()
	return ack.Audit{Server: server, Time: time.Now(), Summary: ack.Summarize(nodes), Nodes: nodes}, nil
}

// tellFate adds to a node without a stream what Kubernetes says of its pod.
func (s *Server) tellFate(n *ack.Node) {
	if n.State != ack.Disconnected || n.Pod.Name == "" {
		return
	}
	fate, pod := s.drains.places.Fate(n.Pod, time.Now()), "pod "+n.Pod.Namespace+"/"+n.Pod.Name
	switch fate.State {
	case drain.Deleted:
		n.Reason += "; " + pod + " deleted at " + fate.At.Format(time.TimeOnly)
	case drain.Ended:
		n.Reason += "; " + pod + " ended at " + fate.At.Format(time.TimeOnly)
	case drain.Runs:
		n.Reason += "; " + pod + " still runs"
	case drain.FateUnknown:
	}
	if fate.Gone() {
		n.PodGoneAt = &fate.At
	}
}

// Status implements admin.Statuser.
func (s *Server) Status() admin.Status {
	source := sources{s.cfg.Source, s.cfg.Static}.status(time.Now())
	problems := slices.Concat(source.problems, *s.loop.problems.Load())
	slices.SortFunc(problems, mesh.Problem.Compare)
	if problems == nil {
		problems = []mesh.Problem{}
	}
	return admin.Status{
		Connected: source.connected,
		ServerStatus: ack.ServerStatus{
			Instance: s.xds.Instance(), Build: s.cfg.Build, Source: s.cfg.Source.Name(),
			Synced: s.loop.synced.Load(), Generation: s.store.Snapshot().Generation(),
			SourceLagSeconds: source.lag.Seconds(), SourceReason: source.reason, Sources: source.parts,
			Problems: problems,
		},
	}
}

// Resources implements admin.Store.
func (s *Server) Resources(ctx context.Context, q admin.Query) ([]admin.Resource, error) {
	view := s.store.View(mesh.View{Listeners: mesh.ListenersAPI})
	if q.Node != "" {
		var known bool
		var err error
		if view, known, err = s.xds.ViewOf(ctx, q.Node); err != nil {
			return nil, err
		}
		if !known {
			return nil, fmt.Errorf("node %s has no stream here: %w", q.Node, admin.ErrNotFound)
		}
	}
	if q.Name == "" {
		all := view.All(q.Type)
		out := make([]admin.Resource, 0, len(all))
		for _, b := range all {
			out = append(out, shown(view, q.Type, b))
		}
		return out, nil
	}
	b := view.Body(q.Type, mesh.Intern(q.Name))
	if b == nil {
		return nil, fmt.Errorf("%s %s: %w", q.Type.Short(), q.Name, admin.ErrNotFound)
	}
	return []admin.Resource{shown(view, q.Type, b)}, nil
}

func shown(v snapshot.View, t mesh.Type, b *snapshot.Body) admin.Resource {
	r := admin.Resource{Name: b.Name.Value(), Version: b.Version}
	if t != xds.TypeSecret {
		r.Body = b.Value()
	}
	if at, cause, ok := v.Cause(t, b.Name); ok {
		r.ChangedAt, r.Cause = at, cause.Object.String()
	}
	return r
}

// Resync implements admin.Resyncer.
func (s *Server) Resync(ctx context.Context, node mesh.NodeID, name string) (int, error) {
	n, known, err := s.xds.Resync(ctx, node, name)
	if err == nil && node != "" && !known {
		err = fmt.Errorf("node %s has no stream here: %w", node, admin.ErrNotFound)
	}
	return n, err
}
