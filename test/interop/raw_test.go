package interop

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// message is a message as it is on the wire.
type message struct{ data mem.BufferSlice }

// rawCodec passes messages on without a look at them. Its name is that of what they are.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return m.data, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	data.Ref()
	m.data = data
	return nil
}
