package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestIndexListsWhatIsServed: the page has every path that is served, the profiles too where they are on.
func TestIndexListsWhatIsServed(t *testing.T) {
	for _, on := range []bool{false, true} {
		h := Handler(Config{Pprof: on})
		get := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w
		}
		index := get("/").Body.String()
		if listed := strings.Contains(index, "GET  /debug/pprof/ "); listed != on {
			t.Errorf("pprof %v, listed %v:\n%s", on, listed, index)
		}
		if served := get("/debug/pprof/").Code == http.StatusOK; served != on {
			t.Errorf("pprof %v, served %v", on, served)
		}
		if !strings.Contains(index, "GET  /ready ") {
			t.Errorf("no /ready:\n%s", index)
		}
	}
}
