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

// Versions is the version of one resource, and those that it had.
type Versions struct {
	Name string `json:"name"`
	// Version is "" for one that is gone.
	Version   mesh.Version `json:"version"`
	ChangedAt time.Time    `json:"changedAt"`
	// Past are the versions before, newest first, a few of them.
	Past []PastVersion `json:"past,omitempty"`
}

// PastVersion is a version that was replaced; "" where there was no resource.
type PastVersion struct {
	Version mesh.Version `json:"version"`
	Until   time.Time    `json:"until"`
}

// AllVersions is the body of GET /versions.
type AllVersions struct {
	// Type is the short name, or the type URL.
	Type string `json:"type"`
	// Time is the server's, of the answer.
	Time      time.Time  `json:"time"`
	Resources []Versions `json:"resources"`
}
