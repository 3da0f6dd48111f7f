package proxy

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// attempt is what came of one endpoint.
type attempt struct {
	Endpoint string          `json:"endpoint"`
	Status   int             `json:"status,omitempty"`
	Reason   upstream.Reason `json:"reason"`
	Took     float64         `json:"seconds"`
}

// note keeps what came of an attempt, for the access log.
func (x *exchange) note(key mesh.EndpointKey, resp answer, failed *upstream.Error, began time.Time) {
	if x.AccessLog == nil {
		return
	}
	a := attempt{Endpoint: key.Address.String(), Reason: upstream.None, Took: time.Since(began).Seconds()}
	if failed != nil {
		a.Reason = failed.Reason
	} else {
		a.Status = resp.status
	}
	x.attempts = append(x.attempts, a)
}

// dialled notes a dial for a tunnel.
func (x *exchange) dialled(key mesh.EndpointKey, reason upstream.Reason, took time.Duration) {
	x.attempts = append(x.attempts, attempt{Endpoint: key.Address.String(), Reason: reason, Took: took.Seconds()})
}
