package mesh

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Version is the hash of a resource's bytes, 16 hex digits; "" stands for no
// resource. Equal bytes have equal versions in every replica of one build.
type Version string

// VersionUnknown stands for a version that cannot be told: of a form that was
// not kept, or that a node may or may not hold.
const VersionUnknown Version = "unknown"

// VersionOf gives the version of a serialised message: the first 8 bytes of its SHA-256.
func VersionOf(value []byte) Version {
	h := sha256.Sum256(value)
	return Version(hex.EncodeToString(h[:8]))
}

// Sum mixes a resource's name and version, so that the XOR of Sums tells sets
// of resources apart and can be kept up to date one resource at a time. It is
// 0 for the version "".
func Sum(name Name, version Version) uint64 {
	if version == "" {
		return 0
	}
	h := sha256.New()
	h.Write([]byte(name.Value()))
	h.Write([]byte{0})
	h.Write([]byte(version))
	var out [sha256.Size]byte
	return binary.BigEndian.Uint64(h.Sum(out[:0]))
}

// SumVersion gives the version of a set of resources from the XOR of their Sums.
func SumVersion(sum uint64) Version {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], sum)
	return Version(hex.EncodeToString(b[:]))
}
