package controlplane

import (
	"context"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Versions implements admin.Versioner.
func (s *Server) Versions(_ context.Context, t mesh.Type) ([]ack.Versions, error) {
	all := s.store.Snapshot().Versions(t)
	out := make([]ack.Versions, 0, len(all))
	for _, v := range all {
		line := ack.Versions{Name: v.Name, Version: v.Version, ChangedAt: v.ChangedAt}
		for _, p := range v.Past {
			line.Past = append(line.Past, ack.PastVersion(p))
		}
		out = append(out, line)
	}
	return out, nil
}

// digests sum up what this server holds, for a comparison with its replicas.
func (s *Server) digests() []ack.Digest {
	all := s.store.Snapshot().Digests()
	out := make([]ack.Digest, 0, len(all))
	for _, d := range all {
		out = append(out, ack.Digest{Type: d.Type.Short(), Resources: d.Resources, Version: d.Version, ChangedAt: d.ChangedAt})
	}
	return out
}
