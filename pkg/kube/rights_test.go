package kube

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// used notes what right each request needs: "list discovery.k8s.io/endpointslices".
type used struct {
	http.Handler

	mu     sync.Mutex // guards rights
	rights map[string]bool
}

func (u *used) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.rights[rightOf(r.URL)] = true
	u.mu.Unlock()
	u.Handler.ServeHTTP(w, r)
}

// rightOf reads a request as the API server's authorization does.
func rightOf(u *url.URL) string {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	verb := "list"
	switch {
	case len(parts) > 1:
		verb = "get"
	case u.Query().Get("watch") != "":
		verb = "watch"
	}
	return verb + " " + group + "/" + parts[0]
}

// TestRights: what a Source asks for, over its whole life, is exactly what Rights says.
func TestRights(t *testing.T) {
	api := kubetest.New(t)
	api.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1:80"), kubetest.Node("n"))
	u := &used{Handler: api, rights: map[string]bool{}}
	server := httptest.NewServer(u)
	defer server.Close()
	r := run(t, newSource(t, server.URL))
	r.is(true, true, "")
	if _, err := r.source.Read(t.Context(), mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	r.until("check of every kind", func() bool {
		for _, s := range r.source.Status().Feeds {
			if s.CheckedAt.Before(since) {
				return false
			}
		}
		return true
	})
	r.stop()
	var want []string
	for _, right := range Rights() {
		for _, verb := range right.Verbs {
			want = append(want, verb+" "+right.Group+"/"+right.Resource)
		}
	}
	slices.Sort(want)
	u.mu.Lock()
	defer u.mu.Unlock()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(u.rights))); diff != "" {
		t.Errorf("(-Rights +used):\n%s", diff)
	}
}
