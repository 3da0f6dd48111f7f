package admin

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"age": age}).Parse(pageText))

// maxPageNodes bounds the table of nodes; those in trouble come first.
const maxPageNodes = 500

type pageData struct {
	ack.Audit
	Connected bool
	// Only is the node that was asked for, "" for all.
	Only mesh.NodeID
	// Hidden counts nodes that are not shown.
	Hidden int
	// Refresh is the seconds until the page loads itself again; 0 for never.
	Refresh int
	States  []stateCount
}

type stateCount struct {
	State ack.State
	Count int
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	q, ok := s.query(w, r, "node", "refresh")
	if !ok {
		return
	}
	data := pageData{Only: mesh.NodeID(q.Get("node")), Connected: s.cfg.Statuser.Status().Connected}
	if text := q.Get("refresh"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 3600 {
			s.fail(w, http.StatusBadRequest, "refresh: seconds, 1 to 3600")
			return
		}
		data.Refresh = n
	}
	current, err := s.cfg.Auditor.Audit(r.Context(), data.Only)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	data.fill(current)
	var page bytes.Buffer // a page that fails half way must not look like a whole one
	if err := pageTemplate.Execute(&page, data); err != nil {
		s.failWith(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if _, err := w.Write(page.Bytes()); err != nil {
		s.log.Debug("an answer was not taken", "err", err)
	}
}

// fill takes the audit, with the nodes in trouble first.
func (d *pageData) fill(a ack.Audit) {
	d.Audit = a
	d.Nodes = slices.Clone(a.Nodes)
	slices.SortStableFunc(d.Nodes, func(x, y ack.Node) int {
		return cmp.Or(cmp.Compare(urgency(x.State), urgency(y.State)), cmp.Compare(x.ID, y.ID))
	})
	if len(d.Nodes) > maxPageNodes {
		d.Hidden = len(d.Nodes) - maxPageNodes
		d.Nodes = d.Nodes[:maxPageNodes]
	}
	d.States = nil
	for _, state := range slices.Backward(ack.States()) {
		d.States = append(d.States, stateCount{state, a.Summary.Of(state)})
	}
}

// urgency orders states from the one that needs a person most; who has
// disconnected may just be gone.
func urgency(s ack.State) int {
	switch s {
	case ack.Fresh:
		return 2 * len(ack.States())
	case ack.Disconnected:
		return len(ack.States())
	case ack.Rejected, ack.Stale, ack.Pending:
	}
	return s.Precedence()
}

// age is audit.Age for the template: a nil time is "never".
func age(now time.Time, at any) string {
	var then time.Time
	switch at := at.(type) {
	case time.Time:
		then = at
	case *time.Time:
		if at != nil {
			then = *at
		}
	}
	return audit.Age(now, then)
}
