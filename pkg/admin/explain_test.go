package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/prometheus/client_golang/prometheus"
)

// teller is an Explainer that says what it was asked.
type teller struct{ err error }

func (e teller) Explain(_ context.Context, node mesh.NodeID, cluster, endpoint string) (history.Story, error) {
	return history.Story{Node: node, Cluster: cluster, Endpoint: endpoint, Verdict: history.Current}, e.err
}

func TestExplain(t *testing.T) {
	p := &plane{}
	for _, tt := range []struct {
		explainer Explainer
		query     string
		code      int
		want      string
	}{
		{teller{}, "?node=n&cluster=c&endpoint=10.0.0.1:80", http.StatusOK, `"endpoint": "10.0.0.1:80"`},
		{teller{}, "?node=n&cluster=c", http.StatusOK, `"verdict": "current"`},
		{teller{}, "?node=n", http.StatusBadRequest, "cluster"},
		{teller{}, "?cluster=c", http.StatusBadRequest, "node"},
		{teller{}, "?node=n&cluster=c&endpoint=10.0.0.1", http.StatusBadRequest, "IP:PORT"},
		{teller{}, "?node=n&cluster=c&endpoints=a", http.StatusBadRequest, "endpoints"},
		{teller{context.DeadlineExceeded}, "?node=n&cluster=c", http.StatusGatewayTimeout, "deadline"},
		{nil, "?node=n&cluster=c", http.StatusNotFound, "no such path"},
	} {
		s := New(Config{Auditor: p, Store: p, Resyncer: p, Statuser: p, Explainer: tt.explainer, Gatherer: prometheus.NewRegistry()})
		if w := do(t, s, http.MethodGet, "/explain"+tt.query); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: %d %s", tt.query, w.Code, fmt.Sprint(w.Body))
		}
	}
}
