package drain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Grace is how long a stream that ended still counts, and how long after its
// start a server does not know its nodes.
const Grace = 30 * time.Second

// Reason is why a drain is not over; also its word in JSON and on the wire.
type Reason string

// The reasons.
const (
	// Listed: the newest configuration itself lists the endpoint as usable.
	Listed Reason = "listed"
	// LastEndpoint: it does although the endpoint terminates, because the
	// service has no other one (KEP-1669).
	LastEndpoint Reason = "last_endpoint"
	// Pending: the node has not acknowledged, and is within its time.
	Pending Reason = "pending"
	// Stale: it has not acknowledged, and its time is over.
	Stale Reason = "stale"
	// Rejected: it refused what takes the endpoint away, and has what it had.
	Rejected Reason = "rejected"
	// Disconnected: its stream ended less than Grace ago, before it acknowledged, and its pod may still run.
	Disconnected Reason = "disconnected"
	// Starting: the server cannot know its nodes yet.
	Starting Reason = "starting"
	// NotSynced: the server knows nothing yet.
	NotSynced Reason = "not_synced"
	// PodUnknown: no object that the server knows names the pod.
	PodUnknown Reason = "pod_unknown"
	// Settling: everybody has acknowledged, but lately, and what was sent before may be on its way.
	Settling Reason = "settling"
	// Unanswered: a stream, or a whole server, did not answer in time.
	Unanswered Reason = "unanswered"
)

// Hold is what a stream may hold of the resource of one Use.
type Hold struct {
	Subscribed bool
	// Latest: it is known to hold the newest form, or to know that there is none; Listed: that form, as its node sees
	// it, lists the endpoint as usable.
	Latest, Listed bool
	// Past: what it holds was current at or after Use.Clean.
	Past bool
}

// InUse tells whether the stream's node may send requests to the endpoint.
func (h Hold) InUse(u Use) bool {
	switch {
	case !h.Subscribed:
		return false
	case h.Latest:
		return h.Listed
	case u.Clean == 0:
		return true
	}
	return !h.Past
}

// Stream is one stream, or one that ended lately.
type Stream struct {
	Node        mesh.NodeID
	ConnectedAt time.Time
	// LeftAt is zero while the stream is open.
	LeftAt time.Time
	// Pod is the pod that the node says it runs in; the zero Key where it does not say. HeardAt is when
	// its client last acknowledged something, or opened it.
	Pod     mesh.Key
	HeardAt time.Time
	// Claims are why its node may use the endpoint; Clear are the resources that it subscribes to without a claim.
	Claims []Claim
	Clear  []mesh.ResourceName
}

// Claim is one resource by which a node may use the endpoint.
type Claim struct {
	Resource mesh.ResourceName
	// Endpoint is "" where it is not known what the node holds.
	Endpoint string
	Reason   Reason
	Since    time.Time
	Detail   string
}

// Wait is one thing that keeps a drain from being over.
type Wait struct {
	Reason Reason `json:"reason"`
	// Node is "" where it is not about one node.
	Node     mesh.NodeID `json:"node,omitempty"`
	Cluster  string      `json:"cluster,omitempty"`
	Endpoint string      `json:"endpoint,omitempty"`
	Since    time.Time   `json:"since,omitzero"`
	Detail   string      `json:"detail,omitempty"`
}

// Facts are what a decision stands on.
type Facts struct {
	Now time.Time
	// ReadyAt is since when nodes can be served; zero: they cannot yet.
	ReadyAt time.Time
	// Known is false for a pod that nothing names.
	Known     bool
	Endpoints []Endpoint
	// Listed are the uses in the newest configuration.
	Listed  []Wait
	Streams []Stream
	// Fates are those of the pods of streams that ended; what is not there is not known.
	Fates map[mesh.Key]Fate
	// Doubts are about the server as a whole.
	Doubts []Wait
}

// MaxWaits bounds the waits of a Report.
const MaxWaits = 100

// Report is the answer to GET /drain.
type Report struct {
	Drained bool   `json:"drained"`
	Target  string `json:"target"`
	// Instance is the server's.
	Instance string `json:"instance"`
	// Endpoints are those looked for, IP:PORT, sorted; IP:* for every port.
	Endpoints []string `json:"endpoints"`
	// Waits are sorted by reason, node, cluster and endpoint, at most 100; empty exactly when drained.
	Waits []Wait `json:"waits"`
	// LeftOut counts the waits beyond that.
	LeftOut int `json:"leftOut,omitempty"`
}

// Decide gives the report, without Target and Instance. next is when the mere
// passing of time may change it; zero for never.
func Decide(f Facts) (r Report, next time.Time) {
	later := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	waits := slices.Concat(f.Listed, f.Doubts)
	switch {
	case f.ReadyAt.IsZero():
		waits = append(waits, Wait{Reason: NotSynced, Detail: "the server knows nothing yet"})
	case f.Now.Sub(f.ReadyAt) < Grace:
		waits = append(waits, Wait{Reason: Starting, Since: f.ReadyAt, Detail: "the server has begun lately, and nodes may not have found it yet"})
		later(f.ReadyAt.Add(Grace))
	}
	if !f.Known {
		waits = append(waits, Wait{Reason: PodUnknown, Detail: "nothing names this pod here"})
	}
	for _, s := range f.Streams {
		if s.LeftAt.IsZero() {
			for _, c := range s.Claims {
				waits = append(waits, c.wait(s.Node))
			}
		}
	}
	for _, s := range abandoned(f) {
		later(s.LeftAt.Add(Grace))
		for _, c := range s.Claims {
			w := c.wait(s.Node)
			w.Reason, w.Since, w.Detail = Disconnected, s.LeftAt, "left before it acknowledged"+f.mayRun(s)
			waits = append(waits, w)
		}
	}
	r.Waits, r.LeftOut = arrange(waits)
	r.Drained = len(r.Waits) == 0
	r.Endpoints = make([]string, 0, len(f.Endpoints))
	for _, e := range f.Endpoints {
		r.Endpoints = append(r.Endpoints, e.String())
	}
	return r, next
}

func (c Claim) wait(node mesh.NodeID) Wait {
	return Wait{Reason: c.Reason, Node: node, Cluster: c.Resource.Name, Endpoint: c.Endpoint, Since: c.Since, Detail: c.Detail}
}

// gone tells whether the proxy that had a stream runs no more: Kubernetes says so of
// its pod, and it was not heard of since.
func (f *Facts) gone(s Stream) bool {
	fate := f.Fates[s.Pod]
	return s.Pod.Name != "" && fate.Gone() && !s.HeardAt.After(fate.At)
}

// mayRun says why a proxy without a stream still counts; "" where it names no pod.
func (f *Facts) mayRun(s Stream) string {
	if s.Pod.Name == "" {
		return ""
	}
	pod := "pod " + s.Pod.Namespace + "/" + s.Pod.Name
	switch f.Fates[s.Pod].State {
	case Runs:
		return "; its " + pod + " still runs"
	case Ended, Deleted:
		return "; it answered after its " + pod + " was said to be gone"
	case FateUnknown:
	}
	return "; nothing tells that its " + pod + " is gone"
}

// abandoned gives the streams that ended lately with claims, whose proxy may still run, and that no newer
// stream of the same node makes up for. A newer one is one opened since the
// other ended, and it makes up for one: a client may have several (gRPC has one
// for each channel), and each has what it has.
func abandoned(f Facts) []Stream {
	var left []Stream
	successors := make(map[mesh.NodeID][]Stream)
	for _, s := range f.Streams {
		switch {
		case s.LeftAt.IsZero() && len(s.Claims) == 0:
			successors[s.Node] = append(successors[s.Node], s)
		case !s.LeftAt.IsZero() && len(s.Claims) > 0 && f.Now.Sub(s.LeftAt) < Grace && !f.gone(s):
			left = append(left, s)
		}
	}
	slices.SortStableFunc(left, func(a, b Stream) int { return b.LeftAt.Compare(a.LeftAt) })
	return slices.DeleteFunc(left, func(s Stream) bool {
		mine := successors[s.Node]
		i := slices.IndexFunc(mine, func(n Stream) bool { return n.ConnectedAt.After(s.LeftAt) && n.clears(s.Claims) })
		if i >= 0 {
			successors[s.Node] = slices.Delete(mine, i, i+1)
		}
		return i >= 0
	})
}

func (s Stream) clears(claims []Claim) bool {
	for _, c := range claims {
		if !slices.Contains(s.Clear, c.Resource) {
			return false
		}
	}
	return true
}

func arrange(waits []Wait) (shown []Wait, leftOut int) {
	slices.SortFunc(waits, compareWaits)
	waits = slices.CompactFunc(waits, func(a, b Wait) bool {
		return a.Reason == b.Reason && a.Node == b.Node && a.Cluster == b.Cluster && a.Endpoint == b.Endpoint
	})
	if waits == nil {
		waits = []Wait{} // [] in JSON, not null
	}
	leftOut = max(len(waits)-MaxWaits, 0)
	return waits[:len(waits)-leftOut], leftOut
}

func compareWaits(a, b Wait) int {
	return cmp.Or(strings.Compare(string(a.Reason), string(b.Reason)), cmp.Compare(a.Node, b.Node),
		strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Endpoint, b.Endpoint), a.Since.Compare(b.Since))
}
