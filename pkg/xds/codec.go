package xds

import (
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for every other message
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec writes responses from bytes that all streams share, keeps what is wrong
// with a request for its reader, and treats every other message as gRPC's own codec does.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*encoded); ok {
		return mem.BufferSlice(*r), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		r.err = c.CodecV2.Unmarshal(data, r.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// received is a request with what was wrong with its bytes. gRPC itself would
// end the stream and call that an internal error of the server.
type received struct {
	message proto.Message
	err     error
}

// encoded is a DiscoveryResponse or DeltaDiscoveryResponse in wire format.
type encoded mem.BufferSlice

// Field numbers of envoy.service.discovery.v3.DiscoveryResponse and
// DeltaDiscoveryResponse; resources is 2 in both and is part of the bodies.
const (
	sotwVersionInfo  = 1
	sotwTypeURL      = 4
	sotwNonce        = 5
	deltaVersionInfo = 1
	deltaTypeURL     = 4
	deltaNonce       = 5
	deltaRemoved     = 6
)

func encode(r *ads.Response, delta bool) *encoded {
	if delta {
		return encodeDelta(r)
	}
	head := header(r.Version, r.Type, r.Nonce, sotwVersionInfo, sotwTypeURL, sotwNonce)
	out := make(encoded, 0, len(r.Resources)+1)
	out = append(out, mem.SliceBuffer(head))
	for _, b := range r.Resources {
		out = append(out, mem.SliceBuffer(b.SotW()))
	}
	return &out
}

func encodeDelta(r *ads.Response) *encoded {
	head := header(r.Version, r.Type, r.Nonce, deltaVersionInfo, deltaTypeURL, deltaNonce)
	for _, name := range r.Removed {
		head = protowire.AppendTag(head, deltaRemoved, protowire.BytesType)
		head = protowire.AppendString(head, name)
	}
	out := make(encoded, 0, len(r.Resources)+1)
	out = append(out, mem.SliceBuffer(head))
	for _, b := range r.Resources {
		out = append(out, mem.SliceBuffer(b.Delta()))
	}
	return &out
}

func header(version mesh.Version, t mesh.Type, nonce string, versionField, typeField, nonceField protowire.Number) []byte {
	head := make([]byte, 0, len(version)+len(t)+len(nonce)+8)
	head = protowire.AppendTag(head, versionField, protowire.BytesType)
	head = protowire.AppendString(head, string(version))
	head = protowire.AppendTag(head, typeField, protowire.BytesType)
	head = protowire.AppendString(head, string(t))
	head = protowire.AppendTag(head, nonceField, protowire.BytesType)
	return protowire.AppendString(head, nonce)
}
