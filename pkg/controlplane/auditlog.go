package controlplane

import (
	"context"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

// The lines of the audit log. Each has time, server (the instance) and event first.

// publishedLine is a change of one resource.
type publishedLine struct {
	Time            time.Time                `json:"time"`
	Server          string                   `json:"server"`
	Event           string                   `json:"event"` // published
	Generation      mesh.Generation          `json:"generation"`
	Type            string                   `json:"type"`
	Name            string                   `json:"name"`
	What            history.What             `json:"what"`
	Version         mesh.Version             `json:"version,omitempty"`
	Endpoints       []history.EndpointChange `json:"endpoints,omitempty"`
	MoreEndpoints   int                      `json:"moreEndpoints,omitempty"`
	Object          string                   `json:"object"`
	ResourceVersion string                   `json:"resourceVersion,omitempty"`
	ChangedAt       time.Time                `json:"changedAt,omitzero"`
	ChangedBy       mesh.ChangeOrigin        `json:"changedBy,omitempty"`
	ReceivedAt      time.Time                `json:"receivedAt,omitzero"`
}

// nodeLine is something that happened to a node, as in the audit's history.
type nodeLine struct {
	Time    time.Time    `json:"time"`
	Server  string       `json:"server"`
	Event   string       `json:"event"`
	Node    mesh.NodeID  `json:"node"`
	Address string       `json:"address,omitempty"`
	Type    string       `json:"type,omitempty"`
	Version mesh.Version `json:"version,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	// Generation and Resources are of what was sent.
	Generation    mesh.Generation `json:"generation,omitempty"`
	Resources     []sentLine      `json:"resources,omitempty"`
	MoreResources int             `json:"moreResources,omitempty"`
}

// sentLine is one resource of a response; without a version it was told to be gone.
type sentLine struct {
	Name    string       `json:"name"`
	Version mesh.Version `json:"version,omitempty"`
}

// syncedLine says that from here on every change is in the log.
type syncedLine struct {
	Time       time.Time       `json:"time"`
	Server     string          `json:"server"`
	Event      string          `json:"event"` // synced
	Generation mesh.Generation `json:"generation"`
}

// maxLineResources bounds the resources that one line names.
const maxLineResources = 1000

// logPublished and logEvent hand over to the audit log; the lines are made by its writer.
func (s *Server) logPublished(entries []history.Entry) {
	for _, e := range entries {
		s.cfg.AuditLog.Record(func() any {
			return publishedLine{
				Time: e.PublishedAt.UTC(), Server: s.xds.Instance(), Event: "published", Generation: e.Generation,
				Type: e.Resource.Type.Short(), Name: e.Resource.Name, What: e.What, Version: e.Version,
				Endpoints: e.Endpoints, MoreEndpoints: e.More,
				Object: e.Cause.Object.String(), ResourceVersion: e.Cause.ResourceVersion,
				ChangedAt: e.Cause.ChangedAt.UTC(), ChangedBy: e.Cause.ChangedBy, ReceivedAt: e.Cause.ReceivedAt.UTC(),
			}
		})
	}
}

func (s *Server) logEvent(e xds.Event) {
	s.cfg.AuditLog.Record(func() any {
		line := nodeLine{
			Time: e.At.UTC(), Server: s.xds.Instance(), Event: e.Event.Event, Node: e.Node, Address: e.Address,
			Type: e.Type, Version: e.Version, Reason: e.Reason, Generation: e.Generation,
			MoreResources: max(len(e.Carried)-maxLineResources, 0),
		}
		line.Resources = sentLines(e.Carried[:len(e.Carried)-line.MoreResources])
		return line
	})
}

func sentLines(carried []ack.Carried) []sentLine {
	out := make([]sentLine, 0, len(carried))
	for _, c := range carried {
		out = append(out, sentLine{c.Name.Value(), c.Version})
	}
	return out
}

func (s *Server) logSynced(g mesh.Generation) {
	if s.cfg.AuditLog == nil {
		return
	}
	now := time.Now().UTC()
	s.cfg.AuditLog.Record(func() any { return syncedLine{now, s.xds.Instance(), "synced", g} })
}

// auditLogEnd is how long a file may take to have the last lines: a disk that hangs, or a pipe
// that nobody reads, must not keep the server from its end.
const auditLogEnd = 3 * time.Second

// runAuditLog runs the audit log until the returned function is called, which
// waits for it, up to auditLogEnd: what happens after the end of ctx is still to be written.
func (s *Server) runAuditLog(ctx context.Context) (stop func()) {
	if s.cfg.AuditLog == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.cfg.AuditLog.Run(ctx) // gives no error
	}()
	return func() {
		cancel()
		limit := time.NewTimer(auditLogEnd)
		defer limit.Stop()
		select {
		case <-done:
		case <-limit.C:
			s.cfg.Logger.Warn("the audit log is left without its last lines: its file does not take them", "after", auditLogEnd)
		}
	}
}
