package proxy

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// attemptEntry is what came of one endpoint, for the access log.
type attemptEntry struct {
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
	a := attemptEntry{Endpoint: key.Address.String(), Reason: upstream.None, Took: time.Since(began).Seconds()}
	if failed != nil {
		a.Reason = failed.Reason
	} else {
		a.Status = resp.status
	}
	x.attemptLog = append(x.attemptLog, a)
}

// dialled notes a dial for a tunnel.
func (x *exchange) dialled(key mesh.EndpointKey, reason upstream.Reason, took time.Duration) {
	x.attemptLog = append(x.attemptLog, attemptEntry{Endpoint: key.Address.String(), Reason: reason, Took: took.Seconds()})
}
