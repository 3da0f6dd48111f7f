package header

import (
	"errors"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// class is what a field is by its name.
type class uint8

const (
	regular class = iota
	method
	scheme
	authority
	path
	protocol
	status
	unknownPseudo
	host
	contentLength
	contentType
	te
	// credential fields never enter a table.
	credential
	// neighbour fields are between a client and its proxy (RFC 9110 section 7.6.1): they go no further.
	neighbour
	// forbidden fields are those of HTTP/1.1 connections (RFC 9113 section 8.2.2).
	forbidden
)

func classOf(name string) class {
	switch name {
	case ":method":
		return method
	case ":scheme":
		return scheme
	case ":authority":
		return authority
	case ":path":
		return path
	case ":protocol":
		return protocol
	case ":status":
		return status
	case "host":
		return host
	case "content-length":
		return contentLength
	case "content-type":
		return contentType
	case "te":
		return te
	case "authorization", "cookie", "set-cookie":
		return credential
	case "proxy-authorization", "proxy-authenticate", "http2-settings":
		return neighbour
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return forbidden
	}
	if name != "" && name[0] == ':' {
		return unknownPseudo
	}
	return regular
}

// What makes a list malformed. The texts name no value, which may be secret.
var (
	errName        = errors.New("a field name is empty, has capitals, or bytes that no name has")
	errValue       = errors.New("a field value has control bytes, or space at an end")
	errPseudo      = errors.New("a pseudo-header field is unknown, out of place, or comes twice")
	errForbidden   = errors.New("a field of HTTP/1.1 connections is in the list")
	errTE          = errors.New("te is something else than trailers")
	errLength      = errors.New("content-length is no number, or comes twice")
	errMissing     = errors.New("a required pseudo-header field is missing")
	errConnect     = errors.New("a CONNECT has the wrong pseudo-header fields")
	errHost        = errors.New("host comes twice, or names something else than :authority")
	errAuthority   = errors.New("the authority has bytes that no authority has")
	errPath        = errors.New("the path is not one in origin form")
	errScheme      = errors.New("the scheme has bytes that no scheme has")
	errMethod      = errors.New("the method is no token")
	errStatus      = errors.New("the status is no number of three digits, or is 101")
	errTrailerList = errors.New("trailers have a pseudo-header field")
)

// token tells which bytes may stand in a token (RFC 9110 section 5.6.2).
var token = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()

// validName: RFC 9113 section 8.2.1. A colon may only stand first.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !token[c] || 'A' <= c && c <= 'Z' {
			if c != ':' || i > 0 || len(name) == 1 {
				return false
			}
		}
	}
	return name != ""
}

// validValue: RFC 9113 section 8.2.1, and no other control bytes either (RFC 9110 section 5.5).
func validValue(v string) bool {
	if v == "" {
		return true
	}
	if blank(v[0]) || blank(v[len(v)-1]) {
		return false
	}
	for i := range len(v) {
		if c := v[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

func validToken(s string) bool {
	for i := range len(s) {
		if !token[s[i]] {
			return false
		}
	}
	return s != ""
}

// pathByte and authorityByte tell which bytes may stand in a path with its
// query, and in an authority: visible ASCII without what would end them (RFC 3986 section 3).
var pathByte, authorityByte = visible("#"), visible("/?#@\\")

func visible(without string) (t [256]bool) {
	for c := 0x21; c < 0x7f; c++ {
		t[c] = !strings.ContainsRune(without, rune(c))
	}
	return t
}

func only(t *[256]bool, s string) bool {
	for i := range len(s) {
		if !t[s[i]] {
			return false
		}
	}
	return true
}

func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

// judge tells what is wrong with a request's pseudo-header fields (RFC 9113
// sections 8.3.1 and 8.5, RFC 8441 section 4). has is the set of those that came.
func judge(r *message.Request, has uint8) error {
	plain := r.Method == "CONNECT" && has&(1<<protocol) == 0
	switch {
	case !validToken(r.Method):
		return errMethod
	case plain && (has&(1<<scheme|1<<path) != 0 || has&(1<<authority) == 0):
		return errConnect
	case has&(1<<protocol) != 0 && (r.Method != "CONNECT" || has&(1<<authority) == 0 || !validToken(r.Protocol)):
		return errConnect
	case r.Authority == "":
		return errMissing
	case !only(&authorityByte, r.Authority):
		return errAuthority
	case plain:
		return nil
	case has&(1<<scheme) == 0 || has&(1<<path) == 0:
		return errMissing
	case r.Scheme != "http" && r.Scheme != "https" && !validScheme(r.Scheme):
		return errScheme
	case r.Path == "*" && r.Method == "OPTIONS":
		return nil
	case r.Path == "" || r.Path[0] != '/' || !only(&pathByte, r.Path):
		return errPath
	}
	return nil
}

// number reads a content-length; false unless it is digits only and fits.
func number(v string) (int64, bool) {
	if v == "" || len(v) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(v[i]-'0')
	}
	return n, true
}
