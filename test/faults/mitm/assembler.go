package mitm

import "encoding/binary"

const (
	// prefixBytes is the length of a gRPC message's prefix: a flag, and a length of 32 bits.
	prefixBytes = 5
	// maxMessageBytes is the longest message that is examined, with its prefix.
	maxMessageBytes = 16<<20 + prefixBytes
)

// assembler cuts one direction of a stream into gRPC messages.
type assembler struct {
	// raw is what has come of the message, with its prefix; nothing of a blind one.
	raw []byte
	// missing is how much of the message is to come; of the prefix, as long as that is incomplete.
	missing int
	// blind tells that the message is too long to be kept.
	blind bool
	// withheld tells that raw has not been passed on.
	withheld bool
}

// begun tells whether a part of a message has come.
func (a *assembler) begun() bool { return a.blind || len(a.raw) > 0 }

// take takes the next n bytes of b, which belong to one message: the rest of its
// prefix, or of the rest as much as there is. whole tells that it is complete.
func (a *assembler) take(b []byte) (n int, whole bool) {
	if !a.begun() {
		a.missing = prefixBytes
	}
	inPrefix := len(a.raw) < prefixBytes
	n = min(a.missing, len(b))
	a.missing -= n
	if !a.blind {
		a.raw = append(a.raw, b[:n]...)
	}
	if inPrefix && a.missing == 0 {
		length := binary.BigEndian.Uint32(a.raw[1:])
		a.missing = int(length)
		a.blind = int64(length)+prefixBytes > maxMessageBytes
	}
	return n, a.missing == 0
}

// next gives the message that came and begins a new one.
func (a *assembler) next() (raw []byte, blind bool) {
	raw, blind = a.raw, a.blind
	*a = assembler{}
	return raw, blind
}
