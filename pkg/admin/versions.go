package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Versioner knows the versions that resources have and had.
type Versioner interface {
	// Versions gives all resources of a type that exist or were there lately,
	// sorted by name, as nodes see them that say nothing of themselves.
	Versions(ctx context.Context, t mesh.Type) ([]Versions, error)
}

// Versions is the version of one resource, and those that it had.
type Versions struct {
	Name string `json:"name"`
	// Version is "" for one that is gone.
	Version   mesh.Version `json:"version"`
	ChangedAt time.Time    `json:"changedAt"`
	// Past are the versions before, newest first, a few of them.
	Past []PastVersion `json:"past,omitempty"`
}

// PastVersion is a version that was replaced; "" where there was no resource.
type PastVersion struct {
	Version mesh.Version `json:"version"`
	Until   time.Time    `json:"until"`
}

// AllVersions is the body of GET /versions.
type AllVersions struct {
	Type string `json:"type"`
	// Time is the server's, of the answer.
	Time      time.Time  `json:"time"`
	Resources []Versions `json:"resources"`
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
		all = []Versions{}
	}
	s.answer(w, http.StatusOK, AllVersions{Type: typ.Short(), Time: time.Now().UTC(), Resources: all})
}
