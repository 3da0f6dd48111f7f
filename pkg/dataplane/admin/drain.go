package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/barrier"
)

// MaxDrain bounds how long GET /drain may wait; DefaultDrain is for how long it does where nothing is said.
const (
	MaxDrain     = 10 * time.Minute
	DefaultDrain = 30 * time.Second
	// maxDrains bounds those that are waited for at a time: this side is open to the whole network.
	maxDrains = 16
)

// drain is GET /drain of the health address: 200 once no proxy sends requests
// to this pod any more, as far as all control planes know, else 504 and why.
func (c Config) drain() http.HandlerFunc {
	tokens := make(chan struct{}, maxDrains)
	return func(w http.ResponseWriter, r *http.Request) {
		timeout := DefaultDrain
		if text := r.URL.Query().Get("timeout"); text != "" {
			var err error
			if timeout, err = time.ParseDuration(text); err != nil || timeout < 0 || timeout > MaxDrain {
				http.Error(w, fmt.Sprintf("timeout %q: a duration such as 30s, up to %v", text, MaxDrain), http.StatusBadRequest)
				return
			}
		}
		select {
		case tokens <- struct{}{}:
			defer func() { <-tokens }()
		default:
			http.Error(w, "too many drains are waited for already", http.StatusServiceUnavailable)
			return
		}
		answer, err := c.Barrier.Ask(r.Context(), timeout)
		switch {
		case errors.Is(err, barrier.ErrNoPod):
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !answer.Drained {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		_ = e.Encode(answer)
	}
}
