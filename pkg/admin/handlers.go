package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Readiness is the body of GET /readyz.
type Readiness struct {
	Ready  bool   `json:"ready"`
	Source string `json:"source"`
	// Synced is true once everything that existed at the start is known.
	Synced bool `json:"synced"`
	// Connected is false while a source cannot be reached; LagSeconds says for how long it
	// has not been, or has been known to be ahead of what is held, Reason why.
	Connected  bool            `json:"connected"`
	LagSeconds float64         `json:"lagSeconds"`
	Reason     string          `json:"reason,omitempty"`
	Generation mesh.Generation `json:"generation"`
	// Problems counts objects that are wrong; they stop nothing. See /audit.
	Problems int `json:"problems"`
	// Sources are the parts of the sources, one by one.
	Sources []ack.SourceState `json:"sources,omitempty"`
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, struct {
		Alive bool `json:"alive"`
	}{true})
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	st := s.cfg.Statuser.Status()
	code := http.StatusOK
	if !st.Synced {
		code = http.StatusServiceUnavailable
	}
	s.answer(w, code, Readiness{
		Ready: st.Synced, Source: st.Source, Synced: st.Synced, Connected: st.Connected,
		LagSeconds: st.SourceLagSeconds, Reason: st.SourceReason,
		Generation: st.Generation, Problems: len(st.Problems), Sources: st.Sources,
	})
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	q, ok := s.query(w, r, "node")
	if !ok {
		return
	}
	audit, err := s.cfg.Auditor.Audit(r.Context(), mesh.NodeID(q.Get("node")))
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, withLists(audit))
}

// withLists gives a with every list that the contract names there, if empty:
// null is what scripts trip over. What a shares with others is not changed.
func withLists(a ack.Audit) ack.Audit {
	if a.Server.Problems == nil {
		a.Server.Problems = []mesh.Problem{}
	}
	a.Nodes = append([]ack.Node{}, a.Nodes...)
	for i := range a.Nodes {
		n := &a.Nodes[i]
		if n.History == nil {
			n.History = []ack.Event{}
		}
		if n.Types == nil {
			n.Types = []ack.TypeState{}
		}
	}
	return a
}

// Resync is the body that answers POST /resync.
type Resync struct {
	// Nodes is how many nodes are sent something again; they have not acknowledged it yet.
	Nodes int       `json:"nodes"`
	At    time.Time `json:"at"`
}

func (s *Server) resync(w http.ResponseWriter, r *http.Request) {
	q, ok := s.query(w, r, "node", "name")
	if !ok {
		return
	}
	n, err := s.cfg.Resyncer.Resync(r.Context(), mesh.NodeID(q.Get("node")), q.Get("name"))
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	s.log.Info("resync asked for", "node", q.Get("node"), "name", q.Get("name"), "nodes", n, "from", r.RemoteAddr)
	s.answer(w, http.StatusOK, Resync{Nodes: n, At: time.Now().UTC()})
}

// query gives the request's parameters. One that is not known, is given twice, or cannot be
// read is answered with 400: a misspelt filter must not act on everything.
func (s *Server) query(w http.ResponseWriter, r *http.Request, known ...string) (url.Values, bool) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Sprintf("query: %v", err))
		return nil, false
	}
	for name, values := range q {
		if len(values) != 1 || !slices.Contains(known, name) {
			s.fail(w, http.StatusBadRequest, fmt.Sprintf("parameter %q: known here, each at most once: %v", name, known))
			return nil, false
		}
	}
	return q, true
}

func (s *Server) answer(w http.ResponseWriter, code int, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		s.log.Error("an answer cannot be written as JSON", "err", err)
		code, text = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(append(text, '\n')); err != nil {
		s.log.Debug("an answer was not taken", "err", err)
	}
}

// Failure is the body of every error.
type Failure struct {
	Error string `json:"error"`
}

func (s *Server) fail(w http.ResponseWriter, code int, reason string) {
	s.answer(w, code, Failure{reason})
}

// failWith answers with what an implementation returned.
func (s *Server) failWith(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, ErrNotFound):
		code = http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = http.StatusGatewayTimeout
	default:
		s.log.Error("a request failed", "path", r.URL.Path, "err", err)
	}
	s.fail(w, code, err.Error())
}
