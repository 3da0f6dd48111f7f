package ack

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Digest sums up what a server holds of one type: replicas with equal digests hold the same.
type Digest struct {
	// Type is the short name, or the type URL.
	Type      string       `json:"type"`
	Resources int          `json:"resources"`
	Version   mesh.Version `json:"version"`
	// ChangedAt is the last change.
	ChangedAt time.Time `json:"changedAt"`
}
