package upstream

import (
	"net/http"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// Answer is how a client hears of an error of ours.
type Answer struct {
	Status int
	// Fields has no content-length.
	Fields []message.Field
	// Text is the body; "" for none.
	Text string
}

// Answer gives it: for gRPC trailers only, which is a head that ends the stream and has status 200 whatever happened
// ("PROTOCOL-HTTP2" of gRPC, Trailers-Only); for others a line of text. Proxy-Status is in both.
func (e *Error) Answer(grpc bool) Answer {
	if grpc {
		fields := []message.Field{{Name: "content-type", Value: "application/grpc"}}
		return Answer{Status: http.StatusOK, Fields: append(fields, e.GRPCTrailers()...)}
	}
	return Answer{Status: e.Reason.Status(), Text: "freshmesh: " + e.Error() + "\n", Fields: []message.Field{
		{Name: "content-type", Value: "text/plain; charset=utf-8"},
		{Name: "proxy-status", Value: e.ProxyStatus()},
	}}
}

// GRPCTrailers are what ends a gRPC call, answered or not.
func (e *Error) GRPCTrailers() []message.Field {
	return []message.Field{
		{Name: "grpc-status", Value: strconv.Itoa(int(e.Reason.GRPC()))},
		{Name: "grpc-message", Value: e.GRPCMessage()},
		{Name: "proxy-status", Value: e.ProxyStatus()},
	}
}
