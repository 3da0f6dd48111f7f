package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// transport reads the requests of one stream, of any variant.
type transport struct {
	stream grpc.ServerStream
	delta  bool
	// only is the type that the stream is bound to; "" for an aggregated one.
	only mesh.Type
}

// recv gives the next request, and the node where the message has one. The
// error is what the client is to be told, or io.EOF.
func (t transport) recv() (ads.Request, *corev3.Node, error) {
	var r ads.Request
	var n *corev3.Node
	var err error
	if t.delta {
		r, n, err = t.recvDelta()
	} else {
		r, n, err = t.recvSotW()
	}
	if err != nil {
		return ads.Request{}, nil, err
	}
	if r.Type, err = t.typeOf(r.Type); err != nil {
		return ads.Request{}, nil, err
	}
	return r, n, nil
}

func (t transport) recvSotW() (ads.Request, *corev3.Node, error) {
	var m discoveryv3.DiscoveryRequest
	if err := t.read(&m); err != nil {
		return ads.Request{}, nil, err
	}
	return ads.Request{
		Type: mesh.Type(m.GetTypeUrl()), Nonce: m.GetResponseNonce(), Names: m.GetResourceNames(),
		Refused: m.GetErrorDetail() != nil, Message: cut(m.GetErrorDetail().GetMessage()),
	}, m.GetNode(), nil
}

func (t transport) recvDelta() (ads.Request, *corev3.Node, error) {
	var m discoveryv3.DeltaDiscoveryRequest
	if err := t.read(&m); err != nil {
		return ads.Request{}, nil, err
	}
	return ads.Request{
		Type: mesh.Type(m.GetTypeUrl()), Nonce: m.GetResponseNonce(),
		Refused: m.GetErrorDetail() != nil, Message: cut(m.GetErrorDetail().GetMessage()),
		Subscribe: m.GetResourceNamesSubscribe(), Unsubscribe: m.GetResourceNamesUnsubscribe(),
		Initial: m.GetInitialResourceVersions(),
	}, m.GetNode(), nil
}

// typeOf is the type of a request: a stream of one type need not name it
// ("Resource types", type_url of DiscoveryRequest).
func (t transport) typeOf(url mesh.Type) (mesh.Type, error) {
	switch {
	case url == "" && t.only == "":
		return "", refusal(RefusedMalformed, codes.InvalidArgument, "type_url: empty; an aggregated stream needs one in every request")
	case url == "":
		return t.only, nil
	case t.only != "" && url != t.only:
		return "", refusal(RefusedMalformed, codes.InvalidArgument, "type_url: %q on a stream that serves only %s", url, t.only)
	}
	return url, nil
}

// read reads one message. gRPC itself tells the client of one that is too large.
func (t transport) read(m proto.Message) error {
	r := received{message: m}
	err := t.stream.RecvMsg(&r)
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return refusal(RefusedMessageBytes, codes.ResourceExhausted, "%s", status.Convert(err).Message())
	case err != nil:
		return err
	case r.err != nil:
		return refusal(RefusedMalformed, codes.InvalidArgument, "request: not a %s: %s", m.ProtoReflect().Descriptor().Name(), r.err)
	}
	return nil
}
