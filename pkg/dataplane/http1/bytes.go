package http1

import (
	"encoding/binary"
	"unsafe"
)

// view is b as a string without a copy. It is the one place where this package
// does so. The rule: b is part of a buffer that is not written to as long as the
// head that was parsed from it is in use (package documentation), or of head.scratch.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// lower maps the bytes of a token (RFC 9110 section 5.6.2) to lower case, and all others to 0.
var lower = func() (t [256]byte) {
	for c := byte('0'); c <= '9'; c++ {
		t[c] = c
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c] = c
		t[c-'a'+'A'] = c
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] = c
	}
	return t
}()

// hostByte has the bytes that may stand in Host (RFC 3986 section 3.2, without user information).
var hostByte = func() (t [256]bool) {
	for c := range 256 {
		l := byte(c) | 0x20
		t[c] = c >= '0' && c <= '9' || l >= 'a' && l <= 'z' && c < 0x80
	}
	for _, c := range []byte("-._~:[]%!$&'()*+,;=") {
		t[c] = true
	}
	return t
}()

func isToken(b []byte) bool {
	for _, c := range b {
		if lower[c] == 0 {
			return false
		}
	}
	return len(b) > 0
}

// controlByte gives the index of the first byte in b that is below 0x20 or
// 0x7f, or len(b). It looks at eight bytes at a time.
func controlByte(b []byte, from int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := from
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		del := w ^ (ones * 0x7f)
		// The usual tests for a byte below 0x20 and for a zero byte. A borrow can
		// mark a byte too many, never one too few, and the loop below looks closely.
		if ((w-ones*0x20)&^w|(del-ones)&^del)&highs != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] < 0x20 || b[i] == 0x7f {
			return i
		}
		// What the words found was a false mark, or lies ahead within eight bytes.
	}
	return len(b)
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// equalFold compares in ASCII; want is in lower case.
func equalFold(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != want[i] {
			return false
		}
	}
	return true
}
