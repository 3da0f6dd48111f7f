package http2

import (
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// errorReply is the answer for an error of ours.
func errorReply(e *upstream.Error, grpc bool) *Reply {
	a := e.Answer(grpc)
	r := &Reply{Status: a.Status, Fields: a.Fields, Body: a.Text}
	if a.Text != "" {
		r.Fields = append(r.Fields, message.Field{Name: "content-length", Value: strconv.Itoa(len(a.Text))})
	}
	return r
}
