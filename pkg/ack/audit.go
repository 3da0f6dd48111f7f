package ack

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// State is how a node, or one type of a node, stands. The words and their
// precedence are those of docs/design (section "Words"): the first that
// applies of disconnected, rejected, stale, pending, fresh.
type State string

// The states, by precedence.
const (
	Disconnected State = "disconnected"
	Rejected     State = "rejected"
	Stale        State = "stale"
	Pending      State = "pending"
	Fresh        State = "fresh"
)

// States gives all of them, by precedence.
func States() []State { return []State{Disconnected, Rejected, Stale, Pending, Fresh} }

// Precedence gives the place of a state in States: the lower, the sooner it decides. It is -1
// for what is no state.
func (s State) Precedence() int { return slices.Index(States(), s) }

// Audit is the body of GET /audit.
type Audit struct {
	Server  ServerStatus `json:"server"`
	Time    time.Time    `json:"time"`
	Summary Summary      `json:"summary"`
	// Nodes are sorted by ID.
	Nodes []Node `json:"nodes"`
}

// ServerStatus is what the server says of itself.
type ServerStatus struct {
	Instance   string          `json:"instance"`
	Build      string          `json:"build"`
	Source     string          `json:"source"`
	Synced     bool            `json:"synced"`
	Generation mesh.Generation `json:"generation"`
	// SourceLagSeconds is 0 while all sources are reached and nothing says that
	// what is held is older than theirs, and otherwise for how long that has not been so.
	SourceLagSeconds float64 `json:"sourceLagSeconds"`
	// SourceReason says what is wrong with a source: not synced, not reached, or behind.
	SourceReason string `json:"sourceReason,omitempty"`
	// Sources are their parts, one by one.
	Sources []SourceState `json:"sources,omitempty"`
	// AckTimeoutSeconds is the deadline for a node, and for a replica.
	AckTimeoutSeconds float64 `json:"ackTimeoutSeconds,omitzero"`
	// Digests are for the comparison of replicas, sorted by type URL.
	Digests  []Digest       `json:"digests,omitempty"`
	Problems []mesh.Problem `json:"problems"`
}

// SourceState is one part of a source: a kind of a cluster, or a directory.
type SourceState struct {
	// Kind is what it brings: "endpointslices", "manifests", "static resources".
	Kind   string `json:"kind"`
	Synced bool   `json:"synced"`
	// ResourceVersion is that up to which everything was delivered; "" for a directory.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// CheckedAt is when it was last proven to hold what the source holds.
	CheckedAt time.Time `json:"checkedAt,omitzero"`
	// LagSeconds is for how long that may not be so; 0 while nothing says so.
	LagSeconds float64 `json:"lagSeconds"`
	Reason     string  `json:"reason,omitempty"`
	// Relists counts how often it was listed anew because its watch or list
	// could not be trusted; LastRelist is the last time.
	Relists    uint64  `json:"relists"`
	LastRelist *Relist `json:"lastRelist,omitempty"`
}

// Relist is a listing made anew, and why: "silent", "deaf", "rewound" or "no-answer".
type Relist struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// Summary counts nodes by state; Nodes is the sum of the others.
type Summary struct {
	Nodes        int `json:"nodes"`
	Fresh        int `json:"fresh"`
	Pending      int `json:"pending"`
	Stale        int `json:"stale"`
	Rejected     int `json:"rejected"`
	Disconnected int `json:"disconnected"`
}

// Of gives the number of nodes in a state.
func (s *Summary) Of(state State) int { return *s.of(state) }

func (s *Summary) of(state State) *int {
	switch state {
	case Disconnected:
		return &s.Disconnected
	case Rejected:
		return &s.Rejected
	case Stale:
		return &s.Stale
	case Pending:
		return &s.Pending
	case Fresh:
		return &s.Fresh
	}
	return new(int) // a state that another build knows
}

// Node is one node in the audit, over all its streams.
type Node struct {
	ID mesh.NodeID `json:"id"`
	// Client is the user agent's name and version, "envoy 1.40.0".
	Client  string `json:"client"`
	Address string `json:"address"`
	// Protocol is "delta", "sotw", or "delta+sotw" for a node that uses both.
	Protocol       string     `json:"protocol"`
	ConnectedAt    time.Time  `json:"connectedAt"`
	ConfirmedAt    *time.Time `json:"confirmedAt,omitempty"`
	DisconnectedAt *time.Time `json:"disconnectedAt,omitempty"`
	// PodGoneAt is when the server heard that the pod of a disconnected node ended, or was deleted; Reason says which.
	PodGoneAt *time.Time `json:"podGoneAt,omitempty"`
	// Pod is the pod that the node says it runs in; the zero Key where it does not say.
	Pod mesh.Key `json:"-"`
	// Streams is how many streams the node has open; several are legal.
	Streams int    `json:"streams"`
	State   State  `json:"state"`
	Active  bool   `json:"active"`
	Reason  string `json:"reason"`
	// Resets counts the streams of this node that the server ended.
	Resets  int         `json:"resets"`
	History []Event     `json:"history"`
	Types   []TypeState `json:"types"`
}

// Event is one line of a node's history; the newest 32 are kept.
type Event struct {
	At time.Time `json:"at"`
	// Event is connected, sent, acked, rejected, probed, reset or disconnected.
	Event   string       `json:"event"`
	Type    string       `json:"type,omitempty"`
	Version mesh.Version `json:"version,omitempty"`
	Reason  string       `json:"reason,omitempty"`
}

// TypeState is one type on one stream of a node.
type TypeState struct {
	// Type is the short name, or the type URL.
	Type     string `json:"type"`
	Wildcard bool   `json:"wildcard"`
	// Subscribed counts the names asked for, those that do not exist
	// included; for a wildcard, the resources that exist.
	Subscribed int   `json:"subscribed"`
	State      State `json:"state"`
	// Behind counts the resources that the node does not hold in their current form.
	Behind int `json:"behind"`
	// BehindVersions is the largest BehindResource.Versions of them.
	BehindVersions  int     `json:"behindVersions,omitempty"`
	StaleForSeconds float64 `json:"staleForSeconds"`
	// ConfirmedAt is when the client last answered on this stream, whatever the type.
	ConfirmedAt *time.Time `json:"confirmedAt,omitempty"`
	SentAt      *time.Time `json:"sentAt,omitempty"`
	AckedAt     *time.Time `json:"ackedAt,omitempty"`
	// HeldVersion and CurrentVersion sum up all subscribed resources; they are equal exactly when Behind is 0.
	HeldVersion    mesh.Version `json:"heldVersion"`
	CurrentVersion mesh.Version `json:"currentVersion"`
	// BehindResources are sorted by name, at most 100 of them.
	BehindResources []BehindResource `json:"behindResources,omitempty"`
	Nack            *Nack            `json:"nack,omitempty"`
	Reason          string           `json:"reason,omitempty"`
}

// BehindResource is a resource that the node does not hold in its current form.
type BehindResource struct {
	Name string `json:"name"`
	// Held is "" when the node has acknowledged none on this stream and told of none
	// from before, and "unknown" when it may or may not hold the current form; Current is "" when the resource is gone.
	Held    mesh.Version `json:"held"`
	Current mesh.Version `json:"current"`
	// Versions is how many versions were published since the one held, the current
	// one included; 0 where the node holds none.
	Versions  int       `json:"versions,omitempty"`
	ChangedAt time.Time `json:"changedAt"`
	// Cause is the object whose change made the current form.
	Cause string `json:"cause"`
}

// Nack is the last refusal of a version that is still current.
type Nack struct {
	Version mesh.Version `json:"version"`
	At      time.Time    `json:"at"`
	Message string       `json:"message"`
	// Resources are sorted, at most 100 of them.
	Resources []string `json:"resources"`
}
