package proxy

import (
	"net/http"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// refusal is how a client hears of an error of ours.
type refusal struct {
	status int
	fields []message.Field
	// text is the body; "" for none, and no word of its length then.
	text string
}

// refusalOf is the answer for e, in the form that the client's protocol has for it.
func refusalOf(e *upstream.Error, grpc bool) refusal {
	r := refusal{status: e.Reason.Status(), fields: []message.Field{{Name: "proxy-status", Value: e.ProxyStatus()}}}
	if grpc {
		// Trailers-only: HEADERS with END_STREAM, and status 200 whatever happened.
		r.status = http.StatusOK
		r.fields = append(r.fields,
			message.Field{Name: "content-type", Value: "application/grpc"},
			message.Field{Name: "grpc-status", Value: strconv.Itoa(int(e.Reason.GRPC()))},
			message.Field{Name: "grpc-message", Value: e.GRPCMessage()})
		return r
	}
	r.text = "freshmesh: " + e.Error() + "\n"
	r.fields = append(r.fields, message.Field{Name: "content-type", Value: "text/plain; charset=utf-8"})
	return r
}
