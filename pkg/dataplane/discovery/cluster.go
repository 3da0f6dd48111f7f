package discovery

import (
	"errors"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Policy is how a cluster's endpoints are chosen.
type Policy string

// The policies that the control plane sends; anything else becomes LeastRequest.
const (
	LeastRequest Policy = "least_request"
	RoundRobin   Policy = "round_robin"
	Random       Policy = "random"
	RingHash     Policy = "ring_hash"
	Maglev       Policy = "maglev"
)

// Cluster is one cluster with its endpoints as discovery holds it. Immutable.
type Cluster struct {
	Name string
	// ServiceName is the name of its assignment: eds_cluster_config.service_name, or Name.
	ServiceName string
	// ConnectTimeout is 5 s unless the resource says otherwise.
	ConnectTimeout time.Duration
	// HTTP2 tells that the upstream speaks HTTP/2 by prior knowledge.
	HTTP2  bool
	Policy Policy
	// Balancing is what Policy and the choice among localities and priorities go by.
	Balancing Balancing
	// Breakers are the limits of circuit_breakers, by priority; nil stands for the defaults.
	Breakers *[Priorities]Limits
	// Outlier is nil where the resource has no outlier_detection: then only a failed connect ejects.
	Outlier *Outlier
	// HealthChecks are asked of every endpoint; empty for none.
	HealthChecks []HealthCheck
	// CloseOnEjection ends what is established on an endpoint when it is
	// ejected, CloseOnOverload the newest requests when a limit was lowered below what is active.
	CloseOnEjection, CloseOnOverload bool
	// Alias is the cluster that this one stands for, when it is the address of a
	// service; "" otherwise. Opaque ports carry no HTTP; Skip ones are not for a proxy.
	Alias        string
	Opaque, Skip bool
	// ProxyHeader: opaque connections to the endpoints begin with a PROXY header, version 2.
	ProxyHeader bool
	// Drain is what is established on an endpoint gets when it leaves; 0 is for ever, nil the proxy's own time.
	Drain *time.Duration
	// Timeout bounds a request from its headers to the end of the answer; 0 for no bound.
	Timeout time.Duration
	// Retry is when a request that failed is sent again; nil for DefaultRetry.
	Retry *Retry
	// Endpoints are in the order of the assignment, each key once.
	Endpoints []mesh.Endpoint
	// Versions of the two resources, as the control plane gave them.
	ClusterVersion, EndpointVersion string
	// ConfirmedAt is when the control plane last vouched for both.
	ConfirmedAt time.Time
	// FromDisk is true until the control plane has answered for this cluster
	// since the start of the process.
	FromDisk bool
}

// Applier takes each change before it is acknowledged. Both methods are called
// from one goroutine, in order, and must not block.
type Applier interface {
	// Apply puts a cluster into effect, new or changed. An error refuses it:
	// it becomes the NACK's text, and the old form stays.
	Apply(*Cluster) error
	// Remove takes a cluster out of effect.
	Remove(name string)
}

// Why Client.Cluster has no cluster to give. Match with errors.Is.
var (
	// ErrUnknownService: the control plane answered that there is no such cluster.
	ErrUnknownService = errors.New("no such service or port")
	// ErrDiscoveryPending: the control plane has not answered for this cluster in time.
	ErrDiscoveryPending = errors.New("discovery has not been answered")
	// ErrDiscoveryLimit: so many names are subscribed already (Config.MaxUnknown, Config.MaxClusters) that this one was not.
	ErrDiscoveryLimit = errors.New("limit of discovery")
	// ErrNeverConnected: as ErrDiscoveryPending, and no control plane was reached since the start.
	ErrNeverConnected = errors.New("no control plane has been reached")
)

// Load is what happened to requests to one endpoint, to be added up for LRS.
type Load struct {
	Issued, Succeeded, Failed uint64
	// ConnectFailed counts dials that failed; these are not in Failed.
	ConnectFailed uint64
}
