package http1

import (
	"bytes"
	"net/http"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// Response is the head of a response as it came. The zero value is ready for Parse.
type Response struct {
	message.Response
	// Minor is that of the version HTTP/1.x.
	Minor int
	// Chunked: the body is in chunked coding. With HEAD and 304 it says so of a body that does not come.
	Chunked bool
	// Close: the server sends no other response on its connection, be it because the body ends with it.
	Close bool
	// Protocol is what Upgrade names where Connection does too; of interest with 101.
	Protocol string
	// Changed says that the head is to be written from the values and not from the bytes that came.
	Changed bool

	head head
	// reason is the line after the version, with its CRLF.
	reason []byte
}

// Parse reads the head at the beginning of buf, which answers a request with
// that method, and gives its length; 0 if more must come. Its error is an *Error.
func (r *Response) Parse(buf []byte, method string, l Limits) (int, error) {
	l = l.withDefaults()
	if begin := buf[:min(len(buf), len(versionOf1))]; string(begin) != versionOf1[:len(begin)] {
		// It need not be awaited: a server of another protocol may say no more.
		return 0, errStatusLine
	}
	n, err := whole(buf, l)
	if n == 0 {
		return 0, err
	}
	r.head.reset()
	h := &r.head
	h.raw = buf[:n]
	r.Response = message.Response{}
	r.Changed, r.Protocol = false, ""
	at, err := r.statusLine(h.raw)
	if err == nil {
		h.minor = r.Minor
		err = h.parse(at, l)
	}
	if err == nil {
		err = h.framing()
	}
	if err != nil {
		return 0, err
	}
	r.conclude(method)
	return n, nil
}

const versionOf1 = "HTTP/1."

// statusLine is RFC 9112 section 4.
func (r *Response) statusLine(raw []byte) (int, error) {
	end := bytes.IndexByte(raw, '\n')
	if end == 0 || raw[end-1] != '\r' {
		return 0, errBareLF
	}
	text := raw[:end-1]
	if len(text) < 12 || string(text[:len(versionOf1)]) != versionOf1 || text[8] != ' ' || len(text) > 12 && text[12] != ' ' {
		return 0, errStatusLine
	}
	for i := controlByte(text, 0); i < len(text); i = controlByte(text, i+1) {
		if text[i] != '\t' {
			return 0, errStatusLine
		}
	}
	switch text[7] {
	case '0', '1':
		r.Minor = int(text[7] - '0')
	default:
		return 0, errVersion
	}
	for _, c := range text[9:12] {
		if c < '0' || c > '9' {
			return 0, errStatusLine
		}
		r.Status = r.Status*10 + int(c-'0')
	}
	if r.Status < 100 {
		return 0, errStatusLine
	}
	r.reason = raw[9 : end+1]
	return end + 1, nil
}

// conclude decides where the body ends (RFC 9112 section 6.3).
func (r *Response) conclude(method string) {
	h := &r.head
	r.Fields, r.Chunked, r.Length = h.fields, h.chunked, h.length
	r.Close = h.close || r.Minor == 0 && !h.keepAlive
	if h.upgrade {
		r.Protocol = h.protocol
	}
	switch {
	case r.Status < 200 || r.Status == http.StatusNoContent:
		// They have no body, and RFC 9110 section 8.6 forbids them to speak of one.
		r.Length, r.Chunked = 0, false
		h.drop("content-length")
	case method == http.MethodHead || r.Status == http.StatusNotModified:
		r.Length = 0
	case r.Chunked || h.lengths == 0:
		r.Length = -1
		r.Close = r.Close || !r.Chunked
	}
}
