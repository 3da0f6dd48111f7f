package upstream

import (
	"slices"

	"google.golang.org/grpc/codes"
)

// Reason says why the proxy could not do what was asked. Its text is the
// metric label, the value of the parameter reason in Proxy-Status, the word in
// a gRPC status message and the log value.
type Reason string

// The reasons; docs/errors.md has them as a table. None is the absence of a
// failure of ours; a 500 of the upstream has the reason None.
const (
	None               Reason = "none"
	NoSuchService      Reason = "no_such_service"
	DiscoveryPending   Reason = "discovery_pending"
	DiscoveryLimit     Reason = "discovery_limit"
	NeverReached       Reason = "control_plane_never_reached"
	NoEndpoints        Reason = "no_endpoints"
	AllEjected         Reason = "all_ejected"
	FailFast           Reason = "fail_fast"
	ConnectRefused     Reason = "connect_refused"
	ConnectTimeout     Reason = "connect_timeout"
	ConnectUnroutable  Reason = "connect_unroutable"
	ConnectFailed      Reason = "connect_failed"
	StreamLimit        Reason = "stream_limit"
	StreamRefused      Reason = "stream_refused"
	ResetBeforeHeaders Reason = "reset_before_headers"
	ResetMidBody       Reason = "reset_mid_body"
	ProtocolError      Reason = "protocol_error"
	UpgradeFailed      Reason = "upgrade_failed"
	BreakerConnections Reason = "breaker_connections"
	BreakerPending     Reason = "breaker_pending"
	BreakerRequests    Reason = "breaker_requests"
	BreakerRetries     Reason = "breaker_retries"
	Overload           Reason = "overload"
	Deadline           Reason = "deadline"
	DeadlineInQueue    Reason = "deadline_in_queue"
	TryTimeout         Reason = "per_try_timeout"
	EndpointEjected    Reason = "endpoint_ejected"
	EndpointRemoved    Reason = "endpoint_removed"
	Draining           Reason = "draining"
	ConnectionAge      Reason = "connection_age"
	ClientGone         Reason = "client_gone"
	BadAuthority       Reason = "bad_authority"
	Malformed          Reason = "malformed_request"
	BadBody            Reason = "bad_request_body"
	BodyTooLarge       Reason = "body_too_large"
	UnknownDestination Reason = "unknown_destination"
	Loop               Reason = "loop"
	NotCaptured        Reason = "not_captured"
	IdleTimeout        Reason = "idle_timeout"
	ConnectionLimit    Reason = "connection_limit"
	HeaderLimit        Reason = "header_limit"
	HeaderTimeout      Reason = "header_timeout"
	BodyTimeout        Reason = "body_timeout"
	SlowReader         Reason = "slow_reader"
	BadProxyHeader     Reason = "bad_proxy_header"
	Internal           Reason = "internal_error"
)

// Layer is where a request failed: who should be looked at first.
type Layer string

// The layers, in the order in which a request passes them.
const (
	// Client: the request itself, or who made it.
	Client Layer = "client"
	// Self: this proxy, its limits and its life.
	Self Layer = "proxy"
	// Discovery: what the control plane said, or did not.
	Discovery Layer = "discovery"
	// Balancing: the choice of an endpoint, and the limits of the cluster.
	Balancing Layer = "balancing"
	// Connection: reaching the endpoint.
	Connection Layer = "connection"
	// Peer: what the endpoint did with the request.
	Peer Layer = "upstream"
)

func (r Reason) outcome() outcome {
	for i := range outcomes {
		if outcomes[i].reason == r {
			return outcomes[i]
		}
	}
	return internal
}

// Layer is where requests that have the reason failed.
func (r Reason) Layer() Layer { return r.outcome().layer }

// Status is the HTTP status that a client gets for the reason.
func (r Reason) Status() int { return r.outcome().status }

// ProxyError is the registered error type of RFC 9209 section 2.3.
func (r Reason) ProxyError() string { return r.outcome().proxyError }

// GRPC is the gRPC status code for the reason.
func (r Reason) GRPC() codes.Code { return r.outcome().grpc }

// Dial tells whether the failure was one of reaching the endpoint, which ejects it.
func (r Reason) Dial() bool {
	return r == ConnectRefused || r == ConnectTimeout || r == ConnectUnroutable || r == ConnectFailed
}

// Reasons gives every reason that has an outcome, in the order of docs/errors.md.
func Reasons() []Reason {
	all := make([]Reason, 0, len(outcomes))
	for _, o := range outcomes {
		all = append(all, o.reason)
	}
	return slices.Clip(all)
}
