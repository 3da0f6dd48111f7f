// Package detect tells what protocol the first bytes of a connection begin.
// It is pure: it looks at bytes that somebody else has read, and never asks
// for more than it needs to tell.
package detect

import "bytes"

// Protocol is what a connection carries, as far as its first bytes tell.
type Protocol int

// The protocols.
const (
	// Undecided means that more bytes are needed.
	Undecided Protocol = iota
	// HTTP1 is a request line of HTTP/1.x (RFC 9112 section 3).
	HTTP1
	// HTTP2 is the connection preface (RFC 9113 section 3.4).
	HTTP2
	// TLS is a ClientHello (RFC 8446 section 4.1.2).
	TLS
	// Opaque is none of these.
	Opaque
)

// String names the protocol in lower case.
func (p Protocol) String() string {
	switch p {
	case Undecided:
		return "undecided"
	case HTTP1:
		return "http/1"
	case HTTP2:
		return "http/2"
	case TLS:
		return "tls"
	case Opaque:
		return "opaque"
	}
	return "unknown"
}

// preface opens every HTTP/2 connection of a client with prior knowledge.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// maxMethod is the longest method taken for one: the registry's longest has 17 bytes.
const maxMethod = 24

// MaxBytes is how many bytes Classify looks at: with so many it never says Undecided.
const MaxBytes = 8 << 10

// Classify tells what b begins. Undecided is for bytes that can still become
// HTTP or TLS.
func Classify(b []byte) Protocol {
	if len(b) == 0 {
		return Undecided
	}
	if n := min(len(b), len(preface)); string(b[:n]) == preface[:n] {
		if n == len(preface) {
			return HTTP2
		}
		return Undecided
	}
	if b[0] == recordHandshake {
		return classifyTLS(b)
	}
	return classifyRequestLine(b)
}

// classifyRequestLine wants method SP target SP HTTP/1.x; a line that is not
// there yet is undecided up to MaxBytes.
func classifyRequestLine(b []byte) Protocol {
	line, _, whole := bytes.Cut(b, []byte{'\n'})
	method, rest, spaced := bytes.Cut(line, []byte{' '})
	if len(method) == 0 || len(method) > maxMethod || !isToken(method) {
		return Opaque
	}
	if !spaced {
		return undecidedUnless(whole || len(b) >= MaxBytes)
	}
	// A target begins with a slash, a star, or what an authority or a scheme may begin with.
	if len(rest) > 0 && (rest[0] <= ' ' || rest[0] > '~') {
		return Opaque
	}
	for _, c := range rest {
		if c < ' ' && c != '\r' || c == 0x7f {
			return Opaque
		}
	}
	if !whole {
		return undecidedUnless(len(b) >= MaxBytes)
	}
	at := bytes.LastIndexByte(rest, ' ')
	if at <= 0 {
		return Opaque
	}
	version := bytes.TrimSuffix(rest[at+1:], []byte{'\r'})
	if string(version) == "HTTP/1.1" || string(version) == "HTTP/1.0" {
		return HTTP1
	}
	return Opaque
}

func undecidedUnless(over bool) Protocol {
	if over {
		return Opaque
	}
	return Undecided
}

// isToken is narrower than RFC 9110 section 5.6.2: methods in use are upper-case
// letters with hyphens, and other protocols begin with lower-case words.
func isToken(b []byte) bool {
	for _, c := range b {
		if !(c >= 'A' && c <= 'Z' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
