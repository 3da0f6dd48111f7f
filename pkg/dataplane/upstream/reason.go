package upstream

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Reason says why the proxy could not do what was asked. Its text is the
// metric label, the value of the parameter reason in Proxy-Status, the word in
// a gRPC status message and the log value.
type Reason string

// The reasons. None is the absence of a failure of ours; a 500 of the upstream
// has the reason None.
const (
	None               Reason = "none"
	NoSuchService      Reason = "no_such_service"
	DiscoveryPending   Reason = "discovery_pending"
	DiscoveryLimit     Reason = "discovery_limit"
	NeverReached       Reason = "control_plane_never_reached"
	NoEndpoints        Reason = "no_endpoints"
	AllEjected         Reason = "all_ejected"
	ConnectRefused     Reason = "connect_refused"
	ConnectTimeout     Reason = "connect_timeout"
	ConnectUnroutable  Reason = "connect_unroutable"
	ConnectFailed      Reason = "connect_failed"
	ResetBeforeHeaders Reason = "reset_before_headers"
	ResetMidBody       Reason = "reset_mid_body"
	BreakerConnections Reason = "breaker_connections"
	BreakerPending     Reason = "breaker_pending"
	BreakerRequests    Reason = "breaker_requests"
	BreakerRetries     Reason = "breaker_retries"
	FailFast           Reason = "fail_fast"
	Deadline           Reason = "deadline"
	DeadlineInQueue    Reason = "deadline_in_queue"
	EndpointEjected    Reason = "endpoint_ejected"
	ClientGone         Reason = "client_gone"
	Draining           Reason = "draining"
	EndpointRemoved    Reason = "endpoint_removed"
	StreamRefused      Reason = "stream_refused"
	ProtocolError      Reason = "protocol_error"
	UpgradeFailed      Reason = "upgrade_failed"
	BadAuthority       Reason = "bad_authority"
	BodyTooLarge       Reason = "body_too_large"
	BadBody            Reason = "bad_request_body"
	UnknownDestination Reason = "unknown_destination"
	Loop               Reason = "loop"
	NotCaptured        Reason = "not_captured"
	IdleTimeout        Reason = "idle_timeout"
	ConnectionLimit    Reason = "connection_limit"
	HeaderLimit        Reason = "header_limit"
	HeaderTimeout      Reason = "header_timeout"
	BodyTimeout        Reason = "body_timeout"
	SlowReader         Reason = "slow_reader"
	Overload           Reason = "overload"
	BadProxyHeader     Reason = "bad_proxy_header"
)

// outcome is what a client is told for a reason.
type outcome struct {
	status int
	// proxyError is a type from the registry of RFC 9209 section 2.3.
	proxyError string
	grpc       codes.Code
}

// outcomes is the one table of reasons. gRPC maps what a client may safely
// repeat to UNAVAILABLE (grpc statuscodes document).
var outcomes = map[Reason]outcome{
	NoSuchService:      {http.StatusNotFound, "destination_not_found", codes.Unimplemented},
	DiscoveryPending:   {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	DiscoveryLimit:     {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	NeverReached:       {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	NoEndpoints:        {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	AllEjected:         {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	ConnectRefused:     {http.StatusServiceUnavailable, "connection_refused", codes.Unavailable},
	ConnectTimeout:     {http.StatusServiceUnavailable, "connection_timeout", codes.Unavailable},
	ConnectUnroutable:  {http.StatusServiceUnavailable, "destination_ip_unroutable", codes.Unavailable},
	ConnectFailed:      {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	ResetBeforeHeaders: {http.StatusBadGateway, "connection_terminated", codes.Unavailable},
	ResetMidBody:       {http.StatusBadGateway, "http_response_incomplete", codes.Unavailable},
	BreakerConnections: {http.StatusServiceUnavailable, "connection_limit_reached", codes.Unavailable},
	BreakerPending:     {http.StatusServiceUnavailable, "connection_limit_reached", codes.Unavailable},
	BreakerRequests:    {http.StatusServiceUnavailable, "connection_limit_reached", codes.Unavailable},
	BreakerRetries:     {http.StatusServiceUnavailable, "connection_limit_reached", codes.Unavailable},
	FailFast:           {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	EndpointEjected:    {http.StatusServiceUnavailable, "connection_terminated", codes.Unavailable},
	DeadlineInQueue:    {http.StatusGatewayTimeout, "connection_timeout", codes.DeadlineExceeded},
	Deadline:           {http.StatusGatewayTimeout, "http_response_timeout", codes.DeadlineExceeded},
	ClientGone:         {499, "http_request_error", codes.Canceled},
	Draining:           {http.StatusServiceUnavailable, "destination_unavailable", codes.Unavailable},
	EndpointRemoved:    {http.StatusServiceUnavailable, "connection_terminated", codes.Unavailable},
	StreamRefused:      {http.StatusServiceUnavailable, "connection_terminated", codes.Unavailable},
	ProtocolError:      {http.StatusBadGateway, "http_protocol_error", codes.Internal},
	UpgradeFailed:      {http.StatusBadGateway, "http_upgrade_failed", codes.Internal},
	BadAuthority:       {http.StatusBadRequest, "http_request_error", codes.InvalidArgument},
	BodyTooLarge:       {http.StatusRequestEntityTooLarge, "http_request_error", codes.ResourceExhausted},
	BadBody:            {http.StatusBadRequest, "http_request_error", codes.InvalidArgument},
	UnknownDestination: {http.StatusForbidden, "http_request_denied", codes.PermissionDenied},
	Loop:               {http.StatusLoopDetected, "proxy_loop_detected", codes.Internal},
	NotCaptured:        {http.StatusMisdirectedRequest, "destination_not_found", codes.Unimplemented},
	IdleTimeout:        {http.StatusGatewayTimeout, "connection_read_timeout", codes.Unavailable},
	ConnectionLimit:    {http.StatusServiceUnavailable, "proxy_internal_response", codes.Unavailable},
	HeaderLimit:        {http.StatusRequestHeaderFieldsTooLarge, "http_request_error", codes.ResourceExhausted},
	HeaderTimeout:      {http.StatusRequestTimeout, "http_request_error", codes.Unavailable},
	BodyTimeout:        {http.StatusRequestTimeout, "http_request_error", codes.Unavailable},
	SlowReader:         {499, "http_request_error", codes.Canceled},
	Overload:           {http.StatusServiceUnavailable, "proxy_internal_response", codes.Unavailable},
	BadProxyHeader:     {http.StatusBadRequest, "http_request_error", codes.InvalidArgument},
}

// internal is told for a reason that the table lacks: a bug of ours, said plainly.
var internal = outcome{http.StatusInternalServerError, "proxy_internal_error", codes.Internal}

func (r Reason) outcome() outcome {
	if o, ok := outcomes[r]; ok {
		return o
	}
	return internal
}

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

// Reasons gives every reason that has an outcome, in no order.
func Reasons() []Reason {
	all := make([]Reason, 0, len(outcomes))
	for r := range outcomes {
		all = append(all, r)
	}
	return all
}
