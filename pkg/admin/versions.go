package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Versioner knows the versions that resources have and had.
type Versioner interface {
	// Versions gives all resources of a type that exist or were there lately,
	// sorted by name, as nodes see them that say nothing of themselves.
	Versions(ctx context.Context, t mesh.Type) ([]ack.Versions, error)
}

func (s *Server) versions(w http.ResponseWriter, r *http.Request) {
	values, ok := s.query(w, r, "type")
	if !ok {
		return
	}
	typ, ok := mesh.ParseType(values.Get("type"))
	if !ok {
		s.fail(w, http.StatusBadRequest, fmt.Sprintf("type %q: one of cds, eds, lds, rds, or a type URL", values.Get("type")))
		return
	}
	all, err := s.cfg.Versioner.Versions(r.Context(), typ)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	if all == nil {
		all = []ack.Versions{}
	}
	s.answer(w, http.StatusOK, ack.AllVersions{Type: typ.Short(), Time: time.Now().UTC(), Resources: all})
}
