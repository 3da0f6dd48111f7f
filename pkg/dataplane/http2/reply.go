package http2

import (
	"net/http"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// errorReply is the answer for an error of ours: for gRPC trailers only, with
// status 200 whatever happened, for others a line of text; Proxy-Status (RFC 9209) in both.
func errorReply(e *upstream.Error, grpc bool) *Reply {
	if grpc {
		return &Reply{Status: http.StatusOK, Fields: append([]message.Field{
			{Name: "content-type", Value: "application/grpc"},
		}, errorTrailers(e)...)}
	}
	text := "freshmesh: " + e.Error() + "\n"
	return &Reply{Status: e.Reason.Status(), Body: text, Fields: []message.Field{
		{Name: "content-type", Value: "text/plain; charset=utf-8"},
		{Name: "content-length", Value: strconv.Itoa(len(text))},
		{Name: "proxy-status", Value: e.ProxyStatus()},
	}}
}

// errorTrailers are what ends a gRPC call with an error of ours.
func errorTrailers(e *upstream.Error) []message.Field {
	return []message.Field{
		{Name: "grpc-status", Value: strconv.Itoa(int(e.Reason.GRPC()))},
		{Name: "grpc-message", Value: e.GRPCMessage()},
		{Name: "proxy-status", Value: e.ProxyStatus()},
	}
}
