package translate

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// marshal gives the one serialisation that a message has in this build.
func marshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		// Only text that is not UTF-8 or a missing required field can do that;
		// we have neither.
		panic(fmt.Sprintf("marshal %s: %v", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return b
}

// pack wraps a message, as bytes that are equal for equal messages.
func pack(m proto.Message) *anypb.Any {
	return &anypb.Any{
		TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()),
		Value:   marshal(m),
	}
}
