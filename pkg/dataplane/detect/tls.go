package detect

import "encoding/binary"

const (
	recordHandshake = 0x16
	clientHello     = 0x01
	recordHeader    = 5
	extServerName   = 0
)

// classifyTLS wants a record of TLS 1.x that begins a ClientHello.
func classifyTLS(b []byte) Protocol {
	if len(b) > 1 && b[1] != 3 || len(b) > 2 && b[2] > 4 {
		return Opaque
	}
	if len(b) > recordHeader {
		if b[recordHeader] == clientHello {
			return TLS
		}
		return Opaque
	}
	return Undecided
}

// SNI gives the host name that a ClientHello asks for (RFC 6066 section 3), ""
// where it names none or the bytes end before it. The hello must be in one
// record, as those of all usual clients are.
func SNI(b []byte) string {
	if Classify(b) != TLS || len(b) < recordHeader {
		return ""
	}
	r := reader(b[recordHeader:])
	r.skip(4 + 2 + 32) // type and length, version, random
	r.skip(r.number(1))
	r.skip(r.number(2))
	r.skip(r.number(1))
	extensions := r.take(r.number(2))
	for len(extensions) > 0 {
		kind := extensions.number(2)
		body := extensions.take(extensions.number(2))
		if kind != extServerName {
			continue
		}
		list := body.take(body.number(2))
		for len(list) > 0 {
			kind := list.number(1)
			name := list.take(list.number(2))
			if kind == 0 {
				return string(name)
			}
		}
	}
	return ""
}

// reader reads what may end at any byte; what is not there reads as nothing.
type reader []byte

func (r *reader) skip(n int) { *r = (*r)[min(n, len(*r)):] }

func (r *reader) take(n int) reader {
	n = min(n, len(*r))
	out := (*r)[:n]
	r.skip(n)
	return out
}

// number reads a number of 1 or 2 bytes.
func (r *reader) number(bytes int) int {
	b := r.take(bytes)
	switch {
	case len(b) < bytes:
		return 0
	case bytes == 1:
		return int(b[0])
	}
	return int(binary.BigEndian.Uint16(b))
}
