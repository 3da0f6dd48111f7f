package admin

import (
	"net/http"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	q, ok := s.query(w, r, "node", "cluster", "endpoint")
	if !ok {
		return
	}
	for _, name := range []string{"node", "cluster"} {
		if q.Get(name) == "" {
			s.fail(w, http.StatusBadRequest, "parameter \""+name+"\": missing; this wants node, cluster, and perhaps endpoint")
			return
		}
	}
	if endpoint := q.Get("endpoint"); endpoint != "" && !strings.Contains(endpoint, ":") {
		s.fail(w, http.StatusBadRequest, "parameter \"endpoint\": want IP:PORT")
		return
	}
	story, err := s.cfg.Explainer.Explain(r.Context(), mesh.NodeID(q.Get("node")), q.Get("cluster"), q.Get("endpoint"))
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, story)
}
