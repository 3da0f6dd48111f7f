package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The gRPC service: Say answers once, Chat each message of a stream.
const (
	chatService = "freshmesh.test.Chat"
	sayMethod   = "/" + chatService + "/Say"
	chatMethod  = "/" + chatService + "/Chat"
)

var chatStream = grpc.StreamDesc{StreamName: "Chat", ClientStreams: true, ServerStreams: true}

// chatServer is what serves it.
type chatServer interface {
	say(ctx context.Context, text string) (string, error)
	chat(stream grpc.ServerStream) error
}

var chatDesc = grpc.ServiceDesc{
	ServiceName: chatService, HandlerType: (*chatServer)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(
		server any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
	) (any, error) {
		var in wrapperspb.StringValue
		if err := decode(&in); err != nil {
			return nil, err
		}
		out, err := server.(chatServer).say(ctx, in.GetValue())
		return wrapperspb.String(out), err
	}}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Chat", ClientStreams: true, ServerStreams: true,
		Handler: func(server any, stream grpc.ServerStream) error { return server.(chatServer).chat(stream) },
	}},
}
