package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
)

// Drainer knows whether anybody still uses an endpoint.
type Drainer interface {
	// Drain gives a report once the target is drained, and otherwise the last
	// one when the timeout is over. It wraps ErrUnavailable when it cannot wait for one more.
	Drain(ctx context.Context, target drain.Target, timeout time.Duration) (drain.Report, error)
}

// ErrUnavailable is wrapped by what an implementation returns when it cannot
// answer now: 503, with the error's text.
var ErrUnavailable = errors.New("unavailable")

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	q, ok := s.query(w, r, "namespace", "pod", "endpoint", "timeout")
	if !ok {
		return
	}
	target, err := targetOf(q.Get("namespace"), q.Get("pod"), q.Get("endpoint"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, err.Error())
		return
	}
	timeout := drain.DefaultTimeout
	if text := q.Get("timeout"); text != "" {
		if timeout, err = time.ParseDuration(text); err != nil || timeout < 0 || timeout > drain.MaxTimeout {
			s.fail(w, http.StatusBadRequest, fmt.Sprintf("timeout %q: a duration such as 30s, up to %v", text, drain.MaxTimeout))
			return
		}
	}
	report, err := s.cfg.Drainer.Drain(r.Context(), target, timeout)
	switch {
	case errors.Is(err, ErrUnavailable):
		s.fail(w, http.StatusServiceUnavailable, err.Error())
	case err != nil:
		s.failWith(w, r, err)
	case report.Drained:
		s.answer(w, http.StatusOK, report)
	default:
		s.answer(w, http.StatusGatewayTimeout, report)
	}
}

func targetOf(namespace, pod, endpoint string) (drain.Target, error) {
	switch {
	case endpoint != "" && (pod != "" || namespace != ""):
		return drain.Target{}, errors.New("endpoint, or namespace and pod: not both")
	case endpoint != "":
		e, ok := drain.EndpointOf(endpoint)
		if !ok {
			return drain.Target{}, fmt.Errorf("endpoint %q: want IP:PORT", endpoint)
		}
		return drain.Target{Endpoint: e}, nil
	case pod == "" || namespace == "":
		return drain.Target{}, errors.New("namespace and pod, or endpoint: what is to be drained?")
	}
	return drain.Target{Namespace: namespace, Pod: pod}, nil
}
