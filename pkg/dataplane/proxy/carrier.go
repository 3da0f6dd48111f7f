package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// carrier moves one request and its answer for a goroutine that waits; exchange decides what becomes of
// them. relayed is that of HTTP/1.1 between a client and an endpoint, bridge that of two sides that speak different
// versions, and of the tunnels of HTTP/2 clients. (HTTP/2 on both sides needs none: stream.) All methods are for the
// request's own goroutine.
type carrier interface {
	// context ends with the request. bound lets it end at a time, if not earlier; cancellable gives what ends it for a cause.
	context() context.Context
	bound(at time.Time)
	cancellable() context.CancelCauseFunc
	// toward gives the carrier to the cluster's endpoints, itself or another one. It comes after the last bound.
	toward(c *endpoints.Cluster) carrier

	// acquire has a connection to an endpoint, or a place on one. Its error is an *upstream.Error: nothing was sent.
	acquire(ctx context.Context, lease *endpoints.Lease) error
	// send sends the request on it, once, and waits for the head of the answer; limit bounds that, 0 does not. One
	// of relay, discard and switched comes next.
	send(ctx context.Context, lease *endpoints.Lease, limit time.Duration) (answer, *upstream.Error)
	// peek waits for the first byte of the answer's body or its end, so that a status in its trailers can still be acted upon.
	peek() error
	// trailers are those of the answer as far as they have come.
	trailers() endpoints.Header
	// discard drops the answer, of which the client knows nothing.
	discard()
	// replayable tells whether the request can be sent again: its body is kept, and the client has seen nothing of an
	// answer. complete tells whether all of the body has come. Neither blocks.
	replayable() bool
	complete() bool

	// relay passes the answer on to its end; last makes it the last of an HTTP/1.1 connection. The lease ends with the
	// endpoint's part. After an error the client has had a part of the answer, the lease may have ended, and abort comes next.
	relay(ctx context.Context, lease *endpoints.Lease, last bool) *upstream.Error
	// abort breaks the answer off. It may not return.
	abort(e *upstream.Error)
	// refuse answers with an error of ours.
	refuse(a upstream.Answer, last bool)
	// accept takes a CONNECT on, and gives the client's side of the tunnel.
	accept() (halfCloser, error)
	// switched passes a 101 on, and gives both sides.
	switched() (up, client halfCloser, err error)

	describer
	// close ends what the request holds. It is the last call.
	close()
}

// head is what is decided by, whatever the request came in.
type head struct {
	method, authority string
	// upgrade is the protocol that the client asks to change to; "" for none. tunnel: it asks for a TCP connection.
	upgrade string
	tunnel  bool
	// fields is how many fields the header has, length that of the body; -1 when only its end will tell.
	fields int
	length int64
	grpc   bool
	// timeout is that of gRPC; 0 for none.
	timeout time.Duration
}

// headOf takes it from a request of HTTP/2, or of HTTP/1.1 but for tunnel.
func headOf(m *message.Request) head {
	h := head{
		method: m.Method, authority: m.Authority, upgrade: m.Protocol, tunnel: m.Method == http.MethodConnect && m.Protocol == "",
		fields: len(m.Fields), length: m.Length, grpc: message.IsGRPC(m.Get("content-type")),
	}
	if h.grpc {
		h.timeout, _ = grpcTimeout(m.Get("grpc-timeout"))
	}
	return h
}

// answer is the head of a final response. Its header is valid until relay, discard or switched.
type answer struct {
	status int
	header endpoints.Header
}
