package upstream

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// outcome is what a client is told for a reason, and what a person should know of it.
type outcome struct {
	reason Reason
	layer  Layer
	status int
	grpc   codes.Code
	// proxyError is a type from the registry of RFC 9209 section 2.3.
	proxyError string
	// meaning and advice are for docs/errors.md.
	meaning, advice string
}

// statusClientGone is what nginx introduced for a client that did not wait; nobody receives it.
const statusClientGone = 499

// outcomes is the one table of reasons. gRPC maps what a client may safely
// repeat to UNAVAILABLE (grpc statuscodes document).
var outcomes = []outcome{
	{
		BadAuthority, Client, http.StatusBadRequest, codes.InvalidArgument, "http_request_error",
		"The authority (Host) can name no service.", "Look at the address that the client uses.",
	},
	{
		Malformed, Client, http.StatusBadRequest, codes.InvalidArgument, "http_request_error",
		"What came is no HTTP/1.1 request, or two readers could take it for two; the status may be another one that says why (417, 501, 505). The connection is closed.", "Look at the client, and at what is between; the error has the rule.",
	},
	{
		BadBody, Client, http.StatusBadRequest, codes.InvalidArgument, "http_request_error",
		"The client's body broke the rules of its protocol.", "Look at the client.",
	},
	{
		BodyTooLarge, Client, http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "http_request_error",
		"The request's body is longer than `--max-request-bytes`.", "Send less, or raise the limit.",
	},
	{
		HeaderLimit, Client, http.StatusRequestHeaderFieldsTooLarge, codes.ResourceExhausted, "http_request_error",
		"The request's header has more fields than `--max-headers`, or is longer than `--max-header-bytes`.", "Send fewer, or raise the limit.",
	},
	{
		HeaderTimeout, Client, http.StatusRequestTimeout, codes.Unavailable, "http_request_error",
		"A request's header was not complete within `--header-timeout`. The connection is closed, without an answer where nothing of it had come.", "Look at the client: it connects, or begins, and says no more.",
	},
	{
		BodyTimeout, Client, http.StatusRequestTimeout, codes.Unavailable, "http_request_error",
		"The client's upload paused for longer than `--body-timeout`.", "Look at the client and the network to it.",
	},
	{
		SlowReader, Client, statusClientGone, codes.Canceled, "http_request_error",
		"The client took nothing of the response for `--write-timeout`; the response broke off.", "Look at the client and the network to it.",
	},
	{
		BadProxyHeader, Client, http.StatusBadRequest, codes.InvalidArgument, "http_request_error",
		"The connection did not begin with a PROXY header, version 2, as its listener wants. It is reset.", "Look at what is in front of the listener.",
	},
	{
		ClientGone, Client, statusClientGone, codes.Canceled, "http_request_error",
		"The client went away before the answer, or broke an opaque connection off.", "Look at the client's timeouts; a slow upstream shows as this where they are short.",
	},
	{
		Overload, Self, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"This proxy has `--max-active-requests` in flight, or holds `--max-memory`, and sheds what is new at once.", "The error says which. Look for the slow upstream that holds them, or raise the limit.",
	},
	{
		NotCaptured, Self, http.StatusMisdirectedRequest, codes.Unimplemented, "destination_not_found",
		"A client connected to the inbound listener itself, which knows only where captured connections were going.", "Connect to the application's own address.",
	},
	{
		Loop, Self, http.StatusLoopDetected, codes.Internal, "proxy_loop_detected",
		"The captured connection was going to this proxy.", "Look at the rules that lead connections here: they must leave out what the proxy sends.",
	},
	{
		ConnectionLimit, Self, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The listeners hold `--max-connections`, or the process has no file descriptor left. A new connection of a client is reset or waits, and only `freshmesh_limits_reached_total` has the reason; a request that needs a new connection to its endpoint is told, and the endpoint is not ejected.", "Look for who holds them, or raise the limit.",
	},
	{
		Draining, Self, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"This proxy was told to stop, and the request was still in flight at the end of `--drain-time`.", "Raise the drain time, or make the work shorter.",
	},
	{
		ConnectionAge, Self, http.StatusServiceUnavailable, codes.Unavailable, "connection_terminated",
		"The client's connection reached `--max-connection-age`, and this request was still on it at the end of the grace.", "Expected of streams that never end: connect again.",
	},
	{
		Internal, Self, http.StatusInternalServerError, codes.Internal, "proxy_internal_error",
		"A defect of this proxy. The client's connection, or its stream, ends; the process goes on.", "Report it: the proxy's log has an error with the stack, and `freshmesh_panics_total` counts them.",
	},
	{
		NoSuchService, Discovery, http.StatusNotFound, codes.Unimplemented, "destination_not_found",
		"The control plane says that there is no such service or port.", "Check the name, the namespace and the port; the error names the cluster that was asked for.",
	},
	{
		UnknownDestination, Discovery, http.StatusForbidden, codes.PermissionDenied, "http_request_denied",
		"The captured connection was going to an address that is no service, and `--unknown-destinations` refuses those.", "Let them pass, or make a service of it.",
	},
	{
		DiscoveryPending, Discovery, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"The control plane has not answered for this service in time.", "The error names it, and its last error where it is lost. See `/freshness` here, and `xds-server audit` for this node.",
	},
	{
		DiscoveryLimit, Discovery, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"So many names are subscribed already that this one was not.", "Find the client that asks for names which do not exist.",
	},
	{
		NeverReached, Discovery, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"No control plane was reached since the start of this proxy, and nothing is known from before.", "The error has the address and what came of dialling it: check `--xds-address` and the network to it.",
	},
	{
		NoEndpoints, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"The service has no endpoint that discovery calls healthy.", "Look at the service's pods and their readiness.",
	},
	{
		AllEjected, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"Every endpoint is ejected or fails its health check; the request waited for one in vain.", "The error names the last failure, its endpoint, and since when there is none.",
	},
	{
		FailFast, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"As all_ejected, and for so long that requests fail without waiting.", "As all_ejected. The proxy goes on dialling the endpoints by itself.",
	},
	{
		DeadlineInQueue, Balancing, http.StatusGatewayTimeout, codes.DeadlineExceeded, "connection_timeout",
		"The request's deadline passed while it waited for a usable endpoint; nothing was sent.", "As all_ejected.",
	},
	{
		BreakerPending, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The limit of requests that wait for an endpoint is reached; those that wait for a stream count too.", "As all_ejected; `freshmesh.dev/max-pending` is the limit.",
	},
	{
		BreakerRequests, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The limit of active requests of the cluster is reached.", "Look for a slow upstream; `freshmesh.dev/max-requests` is the limit.",
	},
	{
		BreakerRetries, Balancing, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The request failed and might have been repeated, but the budget for retries was spent.", "The error names the failure itself; many fail at once.",
	},
	{
		BreakerConnections, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The limit of connections of the cluster is reached.", "`freshmesh.dev/max-connections` is the limit.",
	},
	{
		StreamLimit, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_limit_reached",
		"The endpoint's HTTP/2 connections carry all the streams that it allows, there may be no further connection, and as many requests as may (`freshmesh.dev/max-pending`) wait for a place; or the request's deadline passed while it waited for one.", "Raise the server's maximum of concurrent streams, or `freshmesh.dev/max-connections`; the server may be slow.",
	},
	{
		ConnectRefused, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_refused",
		"Nothing listens at the endpoint's address.", "The process is down or not up yet; if the address is old, see `/freshness`.",
	},
	{
		ConnectTimeout, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_timeout",
		"The endpoint did not take the connection in time, or did not begin to speak HTTP/2.", "The host is gone, a policy drops packets, or the process hangs.",
	},
	{
		ConnectUnroutable, Connection, http.StatusServiceUnavailable, codes.Unavailable, "destination_ip_unroutable",
		"There is no route to the endpoint.", "Look at the node's network.",
	},
	{
		ConnectFailed, Connection, http.StatusServiceUnavailable, codes.Unavailable, "destination_unavailable",
		"Connecting failed in another way; over HTTP/2 also, the endpoint let the connection go before it carried a request.", "The error has the cause.",
	},
	{
		EndpointEjected, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_terminated",
		"The endpoint was ejected, and the service says that this closes what is established.", "`freshmesh.dev/close-established` asks for it.",
	},
	{
		EndpointRemoved, Connection, http.StatusServiceUnavailable, codes.Unavailable, "connection_terminated",
		"The endpoint left the service, and the request was still on it at the end of the drain time.", "Raise `freshmesh.dev/drain`, or make the work shorter.",
	},
	{
		IdleTimeout, Connection, http.StatusGatewayTimeout, codes.Unavailable, "connection_read_timeout",
		"Nothing moved on an opaque connection for `--tcp-idle-timeout`. It is reset.", "Use keepalives in the application, or raise the limit.",
	},
	{
		StreamRefused, Peer, http.StatusServiceUnavailable, codes.Unavailable, "connection_terminated",
		"The endpoint refused the stream without working on it.", "The server sheds load; every endpoint that was tried did.",
	},
	{
		ResetBeforeHeaders, Peer, http.StatusBadGateway, codes.Unavailable, "connection_terminated",
		"The connection broke after the request was sent and before the answer; for an opaque one, before the endpoint had sent anything.", "The process crashed or was killed; the request may have been worked on.",
	},
	{
		ResetMidBody, Peer, http.StatusBadGateway, codes.Unavailable, "http_response_incomplete",
		"The connection broke within the answer, or an opaque one after the endpoint had sent something; the client's ends abnormally too.", "As reset_before_headers.",
	},
	{
		ProtocolError, Peer, http.StatusBadGateway, codes.Internal, "http_protocol_error",
		"What the endpoint sent is not the protocol that was expected.", "Check the port's appProtocol and what listens there.",
	},
	{
		UpgradeFailed, Peer, http.StatusBadGateway, codes.Internal, "http_upgrade_failed",
		"The change of protocols failed.", "The endpoint changed protocols unasked, or answered an extended CONNECT as if it were a plain request, or the client's connection cannot.",
	},
	{
		TryTimeout, Peer, http.StatusGatewayTimeout, codes.DeadlineExceeded, "http_response_timeout",
		"The last attempt had no answer within the time for one attempt.", "`freshmesh.dev/retry` has the time.",
	},
	{
		Deadline, Peer, http.StatusGatewayTimeout, codes.DeadlineExceeded, "http_response_timeout",
		"The request's deadline (grpc-timeout, or the service's timeout) passed; the error says what it waited for.", "The upstream is slow, or the deadline short.",
	},
}

// internal is told for a reason that the table lacks: a bug of ours, said plainly.
var internal = outcome{
	layer: Self, status: http.StatusInternalServerError, grpc: codes.Internal, proxyError: "proxy_internal_error",
}
