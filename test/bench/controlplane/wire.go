package main

import (
	"iter"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// rawCodec sends []byte as it stands, and reads into a *request or *reply only
// what this program looks at. It spares the nodes, which share the machine
// with the servers, all work that is not measured.
type rawCodec struct{}

// Name implements encoding.CodecV2: on the wire this is plain protobuf.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	v.(interface{ parse([]byte) }).parse(buffer.ReadOnlyData())
	return nil
}

// request is what the bare server reads of a DeltaDiscoveryRequest.
type request struct {
	typeURL string
	ack     bool
}

func (r *request) parse(b []byte) {
	for number, value := range fields(b) {
		switch int(number) {
		case 2: // type_url
			r.typeURL = string(value)
		case 6: // response_nonce
			r.ack = len(value) > 0
		}
	}
}

// reply is what a node reads of a DeltaDiscoveryResponse.
type reply struct {
	typeURL, nonce string
	resources      int
	// bytes is the whole message, copied if keep is set.
	keep  bool
	bytes []byte
}

func (r *reply) parse(b []byte) {
	if r.keep {
		r.bytes = append([]byte(nil), b...)
	}
	for number, value := range fields(b) {
		switch int(number) {
		case 2: // resources
			r.resources++
		case 4: // type_url
			r.typeURL = string(value)
		case 5: // nonce
			r.nonce = string(value)
		}
	}
}

// fields gives the length-delimited fields of a message, up to the first that
// is malformed. The values are parts of b.
func fields(b []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(b) > 0 {
			number, kind, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			size := protowire.ConsumeFieldValue(number, kind, b[n:])
			if size < 0 {
				return
			}
			if kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(b[n:])
				if !yield(number, value) {
					return
				}
			}
			b = b[n+size:]
		}
	}
}
