package http1

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// Request is the head of a request as it came. The zero value is ready for Parse.
type Request struct {
	message.Request
	// Minor is that of the version HTTP/1.x.
	Minor int
	// Chunked: the body is in chunked coding, and Length is -1.
	Chunked bool
	// Close: the client sends no other request on its connection.
	Close bool
	// Expect: the client waits for 100 before it sends the body (RFC 9110 section 10.1.1).
	Expect bool
	// Trailers: the client takes trailer fields (TE: trailers).
	Trailers bool
	// Changed says that the head is to be written from the values and not from the bytes that came.
	Changed bool

	head head
	// absolute: Authority came in the target, and Host was not there or said the same.
	absolute bool
}

// Parse reads the head at the beginning of buf and gives its length; 0 if more
// must come. Its error is an *Error.
func (r *Request) Parse(buf []byte, l Limits) (int, error) {
	l = l.withDefaults()
	n, err := whole(buf, l)
	if n == 0 {
		return 0, err
	}
	r.head.reset()
	h := &r.head
	h.raw = buf[:n]
	r.Request = message.Request{Scheme: "http"}
	r.Changed, r.absolute = false, false
	at, err := r.requestLine(h.raw)
	if err == nil {
		h.minor = r.Minor
		err = h.parse(at, l)
	}
	if err == nil {
		err = r.conclude()
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Detach copies what the head's strings lie in, so that it outlives the memory that it was parsed from. It cannot be
// appended any more.
func (r *Request) Detach() {
	r.head.raw = nil
	for _, s := range []*string{&r.Method, &r.Authority, &r.Path, &r.Protocol} {
		*s = strings.Clone(*s)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		f.Name, f.Value = strings.Clone(f.Name), strings.Clone(f.Value)
	}
}

// Rest lets go of the room that an unusually large head took. Nothing of the head may be used after it.
func (r *Request) Rest() {
	if r.head.large() {
		r.head, r.Fields = head{}, nil
	}
}

// requestLine is RFC 9112 section 3: three words with one space between.
func (r *Request) requestLine(raw []byte) (int, error) {
	end := bytes.IndexByte(raw, '\n')
	if end == 0 || raw[end-1] != '\r' {
		return 0, errBareLF
	}
	text := raw[:end-1]
	sp := bytes.IndexByte(text, ' ')
	// " HTTP/1.1" is nine bytes.
	if sp < 0 || len(text)-9 <= sp+1 || text[len(text)-9] != ' ' {
		return 0, errRequestLine
	}
	if !isToken(text[:sp]) {
		return 0, errMethod
	}
	target, version := text[sp+1:len(text)-9], text[len(text)-8:]
	if controlByte(target, 0) < len(target) || bytes.IndexByte(target, ' ') >= 0 {
		return 0, errTarget
	}
	switch string(version) {
	case "HTTP/1.1":
		r.Minor = 1
	case "HTTP/1.0":
		r.Minor = 0
	default:
		return 0, errVersion
	}
	r.Method = view(text[:sp])
	return end + 1, r.target(target)
}

// target is RFC 9112 section 3.2.
func (r *Request) target(t []byte) error {
	switch {
	case r.Method == "CONNECT":
		if !isAuthority(t) || bytes.LastIndexByte(t, ':') <= bytes.LastIndexByte(t, ']') {
			return errTarget
		}
		r.Authority, r.absolute = view(t), true
		return nil
	case t[0] == '/':
	case len(t) == 1 && t[0] == '*' && r.Method == "OPTIONS":
	default:
		const scheme = "http://"
		if len(t) <= len(scheme) || !equalFold(t[:len(scheme)], scheme) {
			return errTarget
		}
		t = t[len(scheme):]
		end := bytes.IndexAny(t, "/?")
		if end < 0 {
			end = len(t)
		}
		if !isAuthority(t[:end]) {
			return errTarget
		}
		r.Authority, r.absolute = view(t[:end]), true
		switch t = t[end:]; {
		case len(t) == 0 && r.Method == "OPTIONS":
			t = star
		case len(t) == 0:
			t = root
		case t[0] != '/':
			// "http://host?query" has an empty path, and there is no telling what a server makes of it.
			return errTarget
		}
	}
	if !escaped(t) {
		return errTarget
	}
	r.Path = view(t)
	return nil
}

var star, root = []byte("*"), []byte("/")

// escaped tells whether each % in the path is followed by two hexadecimal digits; a query may have what it likes.
func escaped(t []byte) bool {
	for i := 0; i < len(t) && t[i] != '?'; i++ {
		if t[i] == '%' && (i+2 >= len(t) || unhex(t[i+1]) < 0 || unhex(t[i+2]) < 0) {
			return false
		}
	}
	return true
}

// isAuthority tells whether a is a host name or an address, with a port or
// without. It is stricter than RFC 3986: what else there is names no service.
func isAuthority(a []byte) bool {
	host := a
	if colon := bytes.LastIndexByte(a, ':'); colon > bytes.LastIndexByte(a, ']') {
		host = a[:colon]
		for _, c := range a[colon+1:] {
			if c < '0' || c > '9' {
				return false
			}
		}
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		ip, err := netip.ParseAddr(view(host[1 : len(host)-1]))
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	for _, c := range host {
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return len(host) > 0
}

// conclude draws from the fields what the whole head says.
func (r *Request) conclude() error {
	h := &r.head
	if err := h.framing(); err != nil {
		return err
	}
	if err := r.authority(); err != nil {
		return err
	}
	r.Fields, r.Chunked, r.Length, r.Trailers = h.fields, h.chunked, h.length, h.trailers
	if h.chunked {
		r.Length = -1
	}
	if r.Method == "CONNECT" && r.Length != 0 {
		return errConnectBody
	}
	r.Close = h.close || r.Minor == 0 && !h.keepAlive
	r.Expect = h.expect
	// Upgrades to HTTP/2 are between two neighbours.
	if h.upgrade && r.Minor == 1 && !(len(h.protocol) >= 2 && h.protocol[0]|0x20 == 'h' && h.protocol[1] == '2') {
		r.Protocol = h.protocol
	}
	return nil
}

// authority is RFC 9112 section 3.2.2 and 3.2.3, and RFC 9110 section 7.2.
func (r *Request) authority() error {
	h := &r.head
	switch {
	case h.hosts > 1:
		return errManyHosts
	case h.hosts == 0 && r.Minor == 1:
		return errNoHost
	}
	for i := range len(h.host) {
		if !hostByte[h.host[i]] {
			return errHost
		}
	}
	switch {
	case !r.absolute:
		r.Authority = h.host
	case h.hosts > 0 && !equalHosts(r.Authority, h.host):
		return errHostConflict
	}
	return nil
}

// equalHosts compares two authorities, whose letters may differ in case.
func equalHosts(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower[a[i]] != lower[b[i]] || lower[a[i]] == 0 && a[i] != b[i] {
			return false
		}
	}
	return true
}
