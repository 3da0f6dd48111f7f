package refresh

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Report says what failed at one node in one cluster since its last report.
type Report struct {
	Node mesh.NodeID
	// Cluster is the name of the cluster, or of its assignment.
	Cluster string
	// Endpoints are those with failures, each address once; of more than 64 the first
	// ones count. Submit takes the slice over.
	Endpoints []EndpointFailure
	// FailConnects counts connects that failed, over all endpoints, for
	// clients that do not tell them apart by endpoint.
	FailConnects uint64
}

// EndpointFailure is what happened at one endpoint.
type EndpointFailure struct {
	// Address is the zero AddrPort where the client gave something that is no IP and port.
	Address netip.AddrPort
	// Errors counts requests that failed, Issued those that were sent,
	// ConnectFailed dials that failed (not in Errors).
	Errors, Issued, ConnectFailed uint64
}

// maxEndpoints bounds how many endpoints of one report are kept, maxNamed how
// many of a pair are remembered as told.
const (
	maxEndpoints = 64
	maxNamed     = 16
)

// Failed tells whether anything failed.
func (r Report) Failed() bool {
	return r.FailConnects > 0 || slices.ContainsFunc(r.Endpoints, EndpointFailure.failed)
}

func (f EndpointFailure) failed() bool { return f.Errors > 0 || f.ConnectFailed > 0 }

// trim gives r with only the endpoints that failed, at most maxEndpoints.
func (r Report) trim() Report {
	r.Endpoints = slices.DeleteFunc(r.Endpoints, func(f EndpointFailure) bool { return !f.failed() })
	if len(r.Endpoints) > maxEndpoints {
		r.Endpoints = slices.Clone(r.Endpoints[:maxEndpoints])
	}
	return r
}

// CountFailedConnects adds to FailConnects.
func (r *Report) CountFailedConnects(n uint64) { r.FailConnects = plus(r.FailConnects, n) }

// CountEndpoint adds what happened at one endpoint, unless nothing failed
// there, or the report names 64 others already: more of them would change no decision.
func (r *Report) CountEndpoint(f EndpointFailure) {
	if !f.failed() {
		return
	}
	i := slices.IndexFunc(r.Endpoints, func(g EndpointFailure) bool { return g.Address == f.Address })
	if i < 0 {
		if len(r.Endpoints) < maxEndpoints {
			r.Endpoints = append(r.Endpoints, f)
		}
		return
	}
	e := &r.Endpoints[i]
	e.Errors, e.Issued, e.ConnectFailed = plus(e.Errors, f.Errors), plus(e.Issued, f.Issued), plus(e.ConnectFailed, f.ConnectFailed)
}

// add gives the sum of two trimmed reports of the same node and cluster; r's endpoints may change.
func (r Report) add(other Report) Report {
	r.CountFailedConnects(other.FailConnects)
	for _, f := range other.Endpoints {
		r.CountEndpoint(f)
	}
	return r
}

// folded is r without its endpoints, whose failures are added up.
func (r Report) folded() Report {
	n := r.connectFailures()
	for _, f := range r.Endpoints {
		n = plus(n, f.Errors)
	}
	r.FailConnects, r.Endpoints = n, nil
	return r
}

// connectFailures is the larger of what the locality counts and what the endpoints add up to: a
// client that reports both reports the same dials twice.
func (r Report) connectFailures() uint64 {
	var n uint64
	for _, f := range r.Endpoints {
		n = plus(n, f.ConnectFailed)
	}
	return max(n, r.FailConnects)
}

// plus is a sum that stays at its maximum: counts are clients' claims, and one
// that wraps to 0 would look like health.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func (r Report) pair() pair { return pair{r.Node, r.Cluster} }

// Verdict is what a report turned out to mean; also the metric's label and the log's value.
type Verdict string

// The verdicts.
const (
	// NodeBehind: the node does not hold what the store holds; it was sent again.
	NodeBehind Verdict = "node-behind"
	// StoreBehind: the source says otherwise than the store did; the store has been updated.
	StoreBehind Verdict = "store-behind"
	// Current: node and store are right, the endpoint really is listed. Nothing is sent.
	Current Verdict = "current"
	// Unverified: the node holds what the store holds, and the source could not be asked.
	Unverified Verdict = "unverified"
)

var verdicts = [...]Verdict{NodeBehind, StoreBehind, Current, Unverified}

// Holding is what is known of a node's copy of a cluster and its assignment.
type Holding struct {
	// Behind tells that the node has not acknowledged the current form of the
	// cluster or of its assignment. It is false for a stranger.
	Behind bool
	// Stranger tells that this server has no stream of the node that subscribes
	// to them: the node may be another replica's, or nobody's.
	Stranger bool
}

// Nodes is what is known of the nodes, and the way to reach them. Run calls
// it from its goroutine; neither method may block.
type Nodes interface {
	// Holds compares what the node acknowledged with what the store holds.
	Holds(node mesh.NodeID, cluster string) Holding
	// Resend sends the cluster and its assignment to the node again, in place
	// of what is in flight, or resets its stream where that cannot help.
	Resend(node mesh.NodeID, cluster string)
}

// Services knows which service a cluster was made from.
type Services interface {
	// ServicesOf gives the service of each of the clusters, cluster → service; those
	// that were not made from one have no entry. It must not block. It is called
	// once for many reports: a client may invent tens of thousands of names.
	ServicesOf(clusters []string) map[string]mesh.Key
}

// Reader reads one service live; mesh.Source is one.
type Reader interface {
	Read(ctx context.Context, service mesh.Key) ([]mesh.Object, error)
}

// Reconciler compares what was read with what translation works from.
type Reconciler interface {
	// Reconcile makes live the truth about the service, publishes what
	// follows from it, and tells whether anything had to change. It may wait for
	// its owner until ctx ends.
	Reconcile(ctx context.Context, service mesh.Key, live []mesh.Object) (changed bool, err error)
}
