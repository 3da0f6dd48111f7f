package history

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Verdict is how a node stands to a cluster, in one word.
type Verdict string

// The verdicts; the first that applies.
const (
	// NodeUnknown: this server has no stream of the node, and had none lately.
	NodeUnknown Verdict = "node-unknown"
	// ClusterUnknown: nothing of that name exists, existed within the log, or is subscribed to by the node.
	ClusterUnknown Verdict = "cluster-unknown"
	// Disconnected: the node has no stream here now.
	Disconnected Verdict = "disconnected"
	// NotSubscribed: the node does not ask for the cluster, so it is not sent to it.
	NotSubscribed Verdict = "not-subscribed"
	// Rejected: the node refused the current form.
	Rejected Verdict = "rejected"
	// Behind: the node is not known to hold the current form.
	Behind Verdict = "behind"
	// Unconfirmed: it acknowledged the current form, and has not answered for too long since.
	Unconfirmed Verdict = "unconfirmed"
	// Current: it holds the current form.
	Current Verdict = "current"
)

// Story is the body of GET /explain.
type Story struct {
	Server Server    `json:"server"`
	Time   time.Time `json:"time"`
	// Node, Cluster and Endpoint are what was asked for; Cluster is the full name
	// where it was found, and Endpoint may be "".
	Node     mesh.NodeID `json:"node"`
	Cluster  string      `json:"cluster"`
	Endpoint string      `json:"endpoint,omitempty"`
	// EndpointNow is the endpoint in the current assignment, as a node sees it that
	// says nothing of itself; "" where the name may stand for several clusters.
	EndpointNow Presence `json:"endpointNow,omitempty"`
	Verdict     Verdict  `json:"verdict"`
	// Summary says the most important in a sentence or two.
	Summary string `json:"summary"`
	// Candidates are the clusters that the name may stand for, if there are several.
	Candidates []string `json:"candidates,omitempty"`
	// State is nil for a node that is not known.
	State *NodeState `json:"state,omitempty"`
	// Holds is what each stream of the node holds of the cluster and its assignment.
	Holds []Hold `json:"holds"`
	// Changes are oldest first, the newest 100 of them; Earlier counts the others in the log.
	Changes []Change `json:"changes"`
	Earlier int      `json:"earlier,omitempty"`
}

// Server is the server that tells, and how far back it remembers.
type Server struct {
	Instance   string          `json:"instance"`
	Generation mesh.Generation `json:"generation"`
	// LogAfter and LogSince are the generation and the time after which every
	// change is remembered; LogComplete tells that this is the server's start.
	LogAfter    mesh.Generation `json:"logAfter"`
	LogSince    time.Time       `json:"logSince"`
	LogComplete bool            `json:"logComplete"`
	// SentSince: of what was sent to the node up to then, nothing is remembered any
	// more; nil when all is, since its first stream here (or for 10 minutes after its last).
	SentSince *time.Time `json:"sentSince,omitempty"`
}

// NodeState is the node as in the audit, without types and history.
type NodeState struct {
	Client         string     `json:"client"`
	Address        string     `json:"address"`
	State          ack.State  `json:"state"`
	Reason         string     `json:"reason,omitempty"`
	Active         bool       `json:"active"`
	Streams        int        `json:"streams"`
	Resets         int        `json:"resets"`
	ConnectedAt    time.Time  `json:"connectedAt"`
	ConfirmedAt    *time.Time `json:"confirmedAt,omitempty"`
	DisconnectedAt *time.Time `json:"disconnectedAt,omitempty"`
	// PodGoneAt is when the server heard that the node's pod ended, or was deleted; Reason says which.
	PodGoneAt *time.Time `json:"podGoneAt,omitempty"`
}

// Presence is an endpoint in a form of an assignment: its health in EDS's words,
// or one of the following.
type Presence string

// The other presences.
const (
	Absent  Presence = "absent"
	Unknown Presence = "unknown"
)

// Hold is what one stream of a node holds of one resource.
type Hold struct {
	Type  string `json:"type"`
	Stage string `json:"stage"` // held, unanswered, refused or not-sent: how far the current form came
	// Held is the version acknowledged last, "" for none; Current is "" when there is no such resource.
	Held    mesh.Version `json:"held"`
	Current mesh.Version `json:"current"`
	Message string       `json:"message,omitempty"` // of the refusal
	// StreamSince is when the stream was opened.
	StreamSince time.Time `json:"streamSince"`
	// Endpoints counts those of the current assignment in this node's view.
	Endpoints int `json:"endpoints,omitempty"`
	// EndpointHeld and EndpointCurrent are set where an endpoint was asked for.
	EndpointHeld    Presence `json:"endpointHeld,omitempty"`
	EndpointCurrent Presence `json:"endpointCurrent,omitempty"`
}

// Change is one change of the cluster, and its way to the node.
type Change struct {
	Generation mesh.Generation `json:"generation"`
	Type       string          `json:"type"`
	What       What            `json:"what"`
	Version    mesh.Version    `json:"version,omitempty"`
	// Endpoints are those that came, went or changed, or of them the one asked for.
	Endpoints     []EndpointChange `json:"endpoints,omitempty"`
	MoreEndpoints int              `json:"moreEndpoints,omitempty"`
	// Object and ResourceVersion are the event; the latter is "" for files.
	Object          string `json:"object"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// ChangedAt is when Kubernetes changed the object, taken from ChangedBy.
	ChangedAt   *time.Time        `json:"changedAt,omitempty"`
	ChangedBy   mesh.ChangeOrigin `json:"changedBy,omitempty"`
	ReceivedAt  *time.Time        `json:"receivedAt,omitempty"`
	PublishedAt time.Time         `json:"publishedAt"`
	// Sent is nil where nothing is known of it, and Note says why.
	Sent *Sent  `json:"sent,omitempty"`
	Note string `json:"note,omitempty"`
}

// Sent is the response by which the node got a change.
type Sent struct {
	At         time.Time       `json:"at"`
	Generation mesh.Generation `json:"generation"`
	Version    mesh.Version    `json:"version,omitempty"`
	// Resources is how many resources it carried. Sure is false where it had so
	// many that their names were not kept: then it probably carried this one.
	Resources int        `json:"resources"`
	Sure      bool       `json:"sure"`
	AckedAt   *time.Time `json:"ackedAt,omitempty"`
	RefusedAt *time.Time `json:"refusedAt,omitempty"`
	Message   string     `json:"message,omitempty"`
}

// Held is how a stream stands to one resource, as Facts.
type Held struct {
	mesh.ResourceName
	ConnectedAt time.Time
	ack.ResourceState
	// Current and Body are the form in the node's view; "" and nil where there is none.
	Current mesh.Version
	Body    []byte
}

// Facts are what a Story is told from.
type Facts struct {
	Instance   string
	Generation mesh.Generation
	Time       time.Time
	Node       mesh.NodeID
	Cluster    string
	Endpoint   string
	Candidates []string
	// Entries are the log's of the cluster and its assignment, oldest first.
	Entries []Entry
	Floor   Floor
	// Exists tells that the store has the cluster or its assignment now.
	Exists bool
	// Assignment is the current one, as a node sees it that says nothing of itself; nil for none.
	Assignment []byte
	// Known tells that the node is; the rest is of it.
	Known bool
	State ack.Node
	// Deliveries are oldest first; Gone is when the newest was sent that is not kept.
	Deliveries []ack.Delivery
	Gone       time.Time
	Held       []Held
}
