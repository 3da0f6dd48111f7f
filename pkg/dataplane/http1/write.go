package http1

import (
	"net/http"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// Append writes the head of the request, as HTTP/1.1 whatever the version that
// it came in. A body of Length -1 must be sent in chunked coding.
func (r *Request) Append(dst []byte) []byte {
	if r.Changed {
		return appendRequest(dst, &r.Request, r.Trailers)
	}
	h := &r.head
	dst = requestLine(dst, &r.Request)
	if r.absolute || h.hosts == 0 {
		dst = appendField(dst, "host", r.Authority)
		for i := range h.lines {
			// The Host that came says the same.
			if l := &h.lines[i]; l.field < 0 && l.keep {
				l.keep = false
			}
		}
	}
	dst = h.appendKept(dst)
	if h.lengths > 0 && !h.lengthKept() {
		dst = appendLength(dst, r.Length)
	}
	return endRequest(dst, &r.Request, r.Trailers)
}

// AppendRequest writes the head of a request that did not come in HTTP/1.1. Its
// names and values must be valid (RFC 9110 section 5), as those are that another
// version's parser has let pass.
func AppendRequest(dst []byte, m *message.Request) []byte {
	trailers := false
	for i := range m.Fields {
		trailers = trailers || m.Fields[i].Name == "te" && m.Fields[i].Value == "trailers"
	}
	return appendRequest(dst, m, trailers)
}

// appendRequest writes the head from its values.
func appendRequest(dst []byte, m *message.Request, trailers bool) []byte {
	dst = requestLine(dst, m)
	dst = appendField(dst, "host", m.Authority)
	had := false
	for i := range m.Fields {
		f := &m.Fields[i]
		had = had || f.Name == "content-length"
		if !ofConnection(f.Name) {
			dst = appendField(dst, f.Name, f.Value)
		}
	}
	if m.Length > 0 || m.Length == 0 && (had || m.Method == http.MethodPost || m.Method == http.MethodPut || m.Method == http.MethodPatch) {
		dst = appendLength(dst, m.Length)
	}
	return endRequest(dst, m, trailers)
}

func requestLine(dst []byte, m *message.Request) []byte {
	dst = append(dst, m.Method...)
	dst = append(dst, ' ')
	if m.Path == "" {
		dst = append(dst, m.Authority...)
	} else {
		dst = append(dst, m.Path...)
	}
	return append(dst, " HTTP/1.1\r\n"...)
}

// endRequest writes what this connection has to say, and ends the head.
func endRequest(dst []byte, m *message.Request, trailers bool) []byte {
	if m.Length < 0 {
		dst = append(dst, "transfer-encoding: chunked\r\n"...)
	}
	if trailers {
		dst = append(dst, "te: trailers\r\n"...)
	}
	if m.Protocol != "" {
		dst = append(dst, "connection: Upgrade\r\n"...)
		dst = appendField(dst, "upgrade", m.Protocol)
	}
	return append(dst, "\r\n"...)
}

// Framing is what the connection of a response has to say.
type Framing struct {
	// Chunked: the body goes out in chunked coding. Length: it has the response's Length.
	// Neither is for what has no body, and for one that ends with the connection.
	Chunked, Length bool
	// Close and KeepAlive are for the field Connection.
	Close, KeepAlive bool
}

// Append writes the head of the response.
func (r *Response) Append(dst []byte, f Framing) []byte {
	h := &r.head
	if r.Changed {
		return appendResponse(dst, &r.Response, r.Protocol, f)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(dst, r.reason...)
	if f.Chunked {
		h.drop("content-length")
	}
	dst = h.appendKept(dst)
	if f.Length && !h.lengthKept() {
		dst = appendLength(dst, r.Length)
	}
	return endResponse(dst, r.Status, r.Protocol, f)
}

// AppendResponse writes the head of a response that did not come in HTTP/1.1; for its
// names and values the same holds as for AppendRequest.
func AppendResponse(dst []byte, m *message.Response, f Framing) []byte {
	return appendResponse(dst, m, "", f)
}

// appendResponse writes the head from its values; protocol is that of a 101.
func appendResponse(dst []byte, m *message.Response, protocol string, f Framing) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(m.Status), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(m.Status)...)
	dst = append(dst, "\r\n"...)
	for i := range m.Fields {
		d := &m.Fields[i]
		// Content-Length may speak of a body that does not come: that of HEAD, or of a 304 (RFC 9110 section 8.6).
		if !ofConnection(d.Name) || d.Name == "content-length" && !f.Chunked && !f.Length && m.Length == 0 && m.Status >= 200 && m.Status != http.StatusNoContent {
			dst = appendField(dst, d.Name, d.Value)
		}
	}
	if f.Length {
		dst = appendLength(dst, m.Length)
	}
	return endResponse(dst, m.Status, protocol, f)
}

// endResponse writes what this connection has to say, and ends the head.
func endResponse(dst []byte, status int, protocol string, f Framing) []byte {
	if f.Chunked {
		dst = append(dst, "transfer-encoding: chunked\r\n"...)
	}
	switch {
	case status == http.StatusSwitchingProtocols:
		dst = append(dst, "connection: Upgrade\r\n"...)
		dst = appendField(dst, "upgrade", protocol)
	case f.Close:
		dst = append(dst, "connection: close\r\n"...)
	case f.KeepAlive:
		dst = append(dst, "connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// appendKept writes the lines that pass as they came, lines that follow each other in one piece.
func (h *head) appendKept(dst []byte) []byte {
	from, to := int32(0), int32(0)
	for i := range h.lines {
		l := &h.lines[i]
		switch {
		case !l.keep:
		case l.start == to:
			to = l.end
		default:
			dst = append(dst, h.raw[from:to]...)
			from, to = l.start, l.end
		}
	}
	return append(dst, h.raw[from:to]...)
}

// lengthKept tells whether appendKept writes a Content-Length.
func (h *head) lengthKept() bool {
	for i := range h.lines {
		l := &h.lines[i]
		if l.keep && l.field >= 0 && h.fields[l.field].Name == "content-length" {
			return true
		}
	}
	return false
}

// ofConnection tells whether a field belongs to one connection, or says how a body is framed: it is never written from
// a head's Fields, but made anew where it is due.
func ofConnection(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "keep-alive", "proxy-connection",
		"proxy-authenticate", "proxy-authorization", "http2-settings":
		return true
	}
	return false
}

func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

func appendLength(dst []byte, n int64) []byte {
	dst = append(dst, "content-length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, "\r\n"...)
}

// AppendLast writes the end of a chunked body, with its trailer fields; for them the same
// holds as for AppendRequest.
func AppendLast(dst []byte, trailers []message.Field) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailers {
		if f := &trailers[i]; !ofConnection(f.Name) {
			dst = appendField(dst, f.Name, f.Value)
		}
	}
	return append(dst, "\r\n"...)
}

// ChunkRoomBefore and ChunkRoomAfter are the most that stands around the data of a chunk: a size of up to 8 digits and a
// CRLF, and another CRLF.
const (
	ChunkRoomBefore = 8 + 2
	ChunkRoomAfter  = 2
)

// PutChunk makes buf[from:to] a chunk where it stands, and gives the new bounds. There must be
// ChunkRoomBefore bytes before and ChunkRoomAfter bytes after it, which are overwritten.
func PutChunk(buf []byte, from, to int) (int, int) {
	n := to - from
	buf[to], buf[to+1] = '\r', '\n'
	from -= 2
	buf[from], buf[from+1] = '\r', '\n'
	for {
		from--
		buf[from] = "0123456789abcdef"[n&15]
		if n >>= 4; n == 0 {
			return from, to + 2
		}
	}
}
