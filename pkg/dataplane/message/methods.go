package message

import (
	"net/http"
	"slices"
	"strings"
)

// Fields are those of a head or of trailers.
type Fields []Field

// Get gives the first value of a field, "" for none; the case of name does not matter.
func (f Fields) Get(name string) string {
	for i := range f {
		if len(f[i].Name) == len(name) && strings.EqualFold(f[i].Name, name) {
			return f[i].Value
		}
	}
	return ""
}

// Get gives the first value of a header field, "" for none; the case of name does not matter.
func (r *Request) Get(name string) string { return Fields(r.Fields).Get(name) }

// Get gives the first value of a header field, "" for none; the case of name does not matter.
func (r *Response) Get(name string) string { return Fields(r.Fields).Get(name) }

// HasBody tells whether a body follows the head that answers a request with that method, be it an empty one (RFC 9110 section 6.4.1).
func (r *Response) HasBody(method string) bool {
	return r.Status >= 200 && r.Status != http.StatusNoContent && r.Status != http.StatusNotModified && method != http.MethodHead
}

// IsGRPC tells whether a content type is one of gRPC ("PROTOCOL-HTTP2" of gRPC, Content-Type).
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// DropLength takes content-length out of a response that must not have it (RFC 9110 section 8.6). Some readers of HTTP/2
// believe it, and wait for a body. Fields may become a copy.
func (r *Response) DropLength() {
	if (r.Status < 200 || r.Status == 204) && r.Get("content-length") != "" {
		r.Fields = slices.DeleteFunc(slices.Clone(r.Fields), func(f Field) bool { return f.Name == "content-length" })
	}
}
