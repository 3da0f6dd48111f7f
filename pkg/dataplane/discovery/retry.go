package discovery

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Retry is when a request that failed is sent again, to another endpoint.
// What is provably unprocessed is sent again whatever it says.
type Retry struct {
	// On are the conditions, with Envoy's names (x-envoy-retry-on and
	// x-envoy-retry-grpc-on); empty for none.
	On []string
	// Attempts is how often a request may be sent again.
	Attempts int
	// PerTryTimeout bounds the wait for the headers of one answer; 0 for no bound.
	PerTryTimeout time.Duration
}

// DefaultRetry holds where a cluster says nothing: a connection that breaks
// before an answer, and only for idempotent methods.
var DefaultRetry = Retry{On: []string{"reset"}, Attempts: 2}

// RetryPolicy is the cluster's policy, or DefaultRetry.
func (c *Cluster) RetryPolicy() *Retry {
	if c.Retry == nil {
		return &DefaultRetry
	}
	return c.Retry
}

// Has tells whether the condition is among those to retry on.
func (r *Retry) Has(condition string) bool { return slices.Contains(r.On, condition) }

// maxAttempts is the most that a resource may ask for.
const maxAttempts = 10

// readRetry reads {on: "A,B", attempts: N, per_try_timeout: "D"}; nil for none.
func readRetry(s *structpb.Struct) *Retry {
	if s == nil {
		return nil
	}
	f := s.GetFields()
	r := &Retry{Attempts: 1}
	for c := range strings.SplitSeq(f[mesh.RetryOnKey].GetStringValue(), ",") {
		if c = strings.TrimSpace(c); c != "" {
			r.On = append(r.On, c)
		}
	}
	if n := f[mesh.RetryAttemptsKey].GetNumberValue(); n >= 1 {
		r.Attempts = int(min(n, maxAttempts))
	}
	r.PerTryTimeout, _ = durationText(f[mesh.RetryPerTryTimeoutKey])
	return r
}

// durationText reads a duration of at least 0 as text; false for anything else.
func durationText(v *structpb.Value) (time.Duration, bool) {
	d, err := time.ParseDuration(v.GetStringValue())
	if err != nil || d < 0 {
		return 0, false
	}
	return d, true
}
