package http1

import (
	"bytes"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// line is a field line as it came: head.raw[start:end] with its CRLF.
type line struct {
	start, end int32
	// field is its place in Fields, -1 where it has none.
	field int32
	// keep: it may be passed on as it is.
	keep bool
}

// head is what requests and responses have in common. Its slices are kept for the next head.
type head struct {
	raw    []byte
	minor  int
	lines  []line
	fields []message.Field
	// scratch has the names that came with capital letters.
	scratch []byte

	// host and length are what Host and Content-Length say; hosts and lengths count those fields.
	host    string
	hosts   int
	length  int64
	lengths int
	// chunked: Transfer-Encoding was there, once, and as it must be.
	chunked bool
	// close, keepAlive and upgrade are what Connection says; named that it names other fields.
	close, keepAlive, upgrade, named bool
	// protocol is what Upgrade says; expect: 100-continue; trailers: TE takes them.
	protocol         string
	expect, trailers bool
}

func (h *head) reset() {
	*h = head{lines: h.lines[:0], fields: h.fields[:0], scratch: h.scratch[:0]}
}

// What a head may take room for that is kept for the next one.
const usualFields, usualScratch = 256, 4 << 10

func (h *head) large() bool {
	return cap(h.lines) > usualFields || cap(h.fields) > usualFields || cap(h.scratch) > usualScratch
}

// parse reads the field lines from h.raw[at:], the empty line included.
func (h *head) parse(at int, l Limits) error {
	raw := h.raw
	for raw[at] != '\r' || raw[at+1] != '\n' {
		if len(h.lines) == l.Fields {
			return errTooManyFields
		}
		next, err := h.line(at)
		if err != nil {
			return err
		}
		at = next
	}
	if at+2 != len(raw) {
		return errFieldName
	}
	if h.named {
		h.dropNamed()
	}
	return nil
}

// line reads one field line and gives where the next begins.
func (h *head) line(at int) (int, error) {
	raw := h.raw
	name, colon, err := h.name(at)
	if err != nil {
		return 0, err
	}
	end := colon + 1
	for {
		end = controlByte(raw, end)
		if raw[end] != '\t' {
			break
		}
		end++
	}
	// There is always one: the head ends in CRLF.
	if raw[end] != '\r' || raw[end+1] != '\n' {
		if raw[end] == '\n' {
			return 0, errBareLF
		}
		return 0, errFieldValue
	}
	if c := raw[end+2]; c == ' ' || c == '\t' {
		return 0, errFold
	}
	value := trim(raw[colon+1 : end])
	keep, field, err := h.take(name, value)
	if err != nil {
		return 0, err
	}
	entry := line{start: int32(at), end: int32(end + 2), field: -1, keep: keep}
	if field {
		entry.field = int32(len(h.fields))
		h.fields = append(h.fields, message.Field{Name: name, Value: view(value)})
	}
	h.lines = append(h.lines, entry)
	return end + 2, nil
}

// name gives the field name at raw[at:] in lower case, and where its colon is.
func (h *head) name(at int) (string, int, error) {
	raw, i, capital := h.raw, at, false
	for ; ; i++ {
		c := lower[raw[i]]
		if c == 0 {
			break
		}
		capital = capital || c != raw[i]
	}
	switch {
	case raw[i] == ':' && i > at:
	case i == at && (raw[i] == ' ' || raw[i] == '\t'):
		return "", 0, errFold
	default:
		return "", 0, errFieldName
	}
	if !capital {
		return view(raw[at:i]), i, nil
	}
	// Should the append move scratch, older names stay where they are.
	from := len(h.scratch)
	for _, c := range raw[at:i] {
		h.scratch = append(h.scratch, lower[c])
	}
	return view(h.scratch[from:]), i, nil
}

// take notes what a field says to this connection, if it does. keep tells
// whether its line may be passed on as it came, field whether it is one of Fields.
func (h *head) take(name string, value []byte) (keep, field bool, err error) {
	switch name {
	case "host":
		h.host = view(value)
		h.hosts++
		return true, false, nil
	case "content-length":
		h.lengths++
		h.length, err = parseLength(value)
		// One with leading zeros is written anew: not every server reads them alike.
		return len(value) == 1 || len(value) > 1 && value[0] != '0', true, err
	case "transfer-encoding":
		if h.chunked || !equalFold(value, "chunked") {
			return false, false, errCoding
		}
		h.chunked = true
	case "connection":
		h.connection(value)
	case "upgrade":
		h.protocol = view(value)
	case "te":
		for token := range bytes.SplitSeq(value, []byte{','}) {
			h.trailers = h.trailers || equalFold(trim(token), "trailers")
		}
	case "expect":
		if !equalFold(value, "100-continue") {
			return false, false, errExpect
		}
		// RFC 9110 section 10.1.1: in HTTP/1.0 it means nothing.
		h.expect = h.minor == 1
		return h.expect, h.expect, nil
	case "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "http2-settings":
	default:
		return true, true, nil
	}
	return false, false, nil
}

// parseLength reads 1*DIGIT (RFC 9110 section 8.6) that fits 63 bits.
func parseLength(b []byte) (int64, error) {
	if len(b) == 0 {
		return 0, errLength
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<63-1)/10 {
			return 0, errLength
		}
		if n = n*10 + int64(c-'0'); n < 0 {
			return 0, errLength
		}
	}
	return n, nil
}

// connection notes what a Connection field says; of the fields that it names only that there are some (dropNamed).
func (h *head) connection(value []byte) {
	for token := range bytes.SplitSeq(value, []byte{','}) {
		switch token = trim(token); {
		case len(token) == 0:
		case equalFold(token, "close"):
			h.close = true
		case equalFold(token, "keep-alive"):
			h.keepAlive = true
		case equalFold(token, "upgrade"):
			h.upgrade = true
		default:
			h.named = true
		}
	}
}

// dropNamed takes out the fields that Connection names. It reads Connection
// again, since a name may stand before or after what it names.
func (h *head) dropNamed() {
	kept := h.fields[:0]
	for i := range h.lines {
		l := &h.lines[i]
		if l.field < 0 {
			continue
		}
		f := h.fields[l.field]
		if f.Name != "content-length" && h.names(f.Name) {
			l.keep, l.field = false, -1
			continue
		}
		l.field = int32(len(kept))
		kept = append(kept, f)
	}
	h.fields = kept
}

// names tells whether a Connection field has the token name.
func (h *head) names(name string) bool {
	for _, l := range h.lines {
		text := h.raw[l.start:l.end]
		colon := bytes.IndexByte(text, ':')
		if !equalFold(text[:colon], "connection") {
			continue
		}
		for token := range bytes.SplitSeq(text[colon+1:len(text)-2], []byte{','}) {
			if equalFold(trim(token), name) {
				return true
			}
		}
	}
	return false
}

// framing checks what says how long the body is (RFC 9112 section 6).
func (h *head) framing() error {
	switch {
	case h.lengths > 1:
		return errManyLengths
	case h.lengths > 0 && h.chunked:
		return errLengthCoding
	case h.chunked && h.minor == 0:
		return errCoding10
	}
	return nil
}

// drop keeps the lines of a field from being passed on as they are.
func (h *head) drop(name string) {
	for i := range h.lines {
		l := &h.lines[i]
		if l.field >= 0 && h.fields[l.field].Name == name {
			l.keep = false
		}
	}
}
