package header

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

const (
	// entries is how many a table of TableSize can hold: each counts 32 bytes at least.
	entries = TableSize / 32
	// A field is in one of ways places of one of slots; a request of no more
	// fields than ways never loses one to another.
	slots, ways = entries / 4, 8
	// firstRing is how long a table begins to be.
	firstRing = 8
)

// Encoder writes the blocks of one direction of a connection, in the order in
// which they are sent. Strings are written without Huffman coding: it would
// cost both sides more than the few bytes of a network that is near.
//
// There is one for each connection, and most of those are idle: so what leads
// to the table is small, and the table's memory grows with what enters it.
type Encoder struct {
	seed maphash.Seed
	// ring holds entry id at id%len(ring), for the ids from oldest up to newest; its length is a power of two.
	ring           []pair
	oldest, newest uint64
	size, limit    int
	// update: the limit changed, which the next block must say first; lowest is the least it was meanwhile.
	update bool
	lowest int

	// fields and names lead from a hash to the entry which has it, or had it. Collisions only cost bytes.
	fields [slots][ways]ref
	names  [entries]ref
	// once has the hashes of fields that came and did not enter the table, the
	// latest first. With one place each, two fields that share it would keep each
	// other out for as long as both come.
	once [slots][ways]uint16
}

// ref is the end of an entry's id, which tells those in the table apart, or a
// static index with the bit fixed. One that has gone may look like another one later, so whoever follows it compares.
type ref uint16

const fixed ref = 1 << 15

// NewEncoder makes an encoder with a table of TableSize.
func NewEncoder() *Encoder {
	return &Encoder{seed: maphash.MakeSeed(), oldest: 1, limit: TableSize, lowest: TableSize}
}

// SetTableSize takes the peer's SETTINGS_HEADER_TABLE_SIZE; the table never
// grows beyond TableSize.
func (e *Encoder) SetTableSize(n uint32) {
	size := int(min(n, TableSize))
	if size == e.limit && !e.update {
		return
	}
	e.limit, e.update = size, true
	e.lowest = min(e.lowest, size)
	e.evict(0)
}

// AppendRequest appends the block of a request. Host is not written: Authority is.
func (e *Encoder) AppendRequest(dst []byte, r *message.Request) []byte {
	dst = e.begin(dst)
	dst = e.field(dst, ":method", r.Method, false)
	if r.Method != "CONNECT" || r.Protocol != "" {
		dst = e.field(dst, ":scheme", r.Scheme, false)
		dst = e.field(dst, ":path", r.Path, false)
	}
	if r.Authority != "" {
		dst = e.field(dst, ":authority", r.Authority, false)
	}
	if r.Protocol != "" {
		dst = e.field(dst, ":protocol", r.Protocol, false)
	}
	return e.list(dst, r.Fields)
}

// AppendResponse appends the block of a response.
func (e *Encoder) AppendResponse(dst []byte, r *message.Response) []byte {
	dst = e.begin(dst)
	if r.Status == 200 {
		dst = append(dst, 0x88)
	} else {
		var digits [3]byte
		n := r.Status
		for i := range digits {
			digits[len(digits)-1-i] = byte('0' + n%10)
			n /= 10
		}
		dst = e.field(dst, ":status", string(digits[:]), false)
	}
	return e.list(dst, r.Fields)
}

// AppendTrailers appends the block of trailers.
func (e *Encoder) AppendTrailers(dst []byte, fields []message.Field) []byte {
	return e.list(e.begin(dst), fields)
}

// begin says that the table's limit changed, if it did (RFC 7541 section 4.2).
func (e *Encoder) begin(dst []byte) []byte {
	if !e.update {
		return dst
	}
	e.update = false
	if e.lowest < e.limit {
		// Emptied, since x/net's decoder takes a second update only of an empty table.
		e.evict(e.limit)
		dst = appendInt(dst, 0x20, 5, 0)
	}
	e.lowest = e.limit
	return appendInt(dst, 0x20, 5, uint64(e.limit))
}

func (e *Encoder) list(dst []byte, fields []message.Field) []byte {
	for i := range fields {
		f := &fields[i]
		dst = e.field(dst, f.Name, f.Value, f.Sensitive)
	}
	return dst
}

func (e *Encoder) field(dst []byte, name, value string, sensitive bool) []byte {
	nameHash := maphash.String(e.seed, name)
	if sensitive {
		return e.literal(dst, 0x10, 4, nameHash, name, value)
	}
	hash := nameHash*31 + maphash.String(e.seed, value)
	slot := &e.fields[hash%slots]
	for _, r := range slot {
		if i := e.match(r, name, value); i > 0 {
			return appendInt(dst, 0x80, 7, i)
		}
	}
	if i := staticPairs[pair{name, value}]; i > 0 {
		*e.place(slot) = ref(i) | fixed
		return appendInt(dst, 0x80, 7, i)
	}
	if size := len(name) + len(value) + 32; size > e.limit/2 || !e.again(hash) {
		return e.literal(dst, 0, 4, nameHash, name, value)
	}
	dst = e.literal(dst, 0x40, 6, nameHash, name, value)
	r := e.insert(name, value)
	*e.place(slot) = r
	e.names[nameHash%entries] = r
	return dst
}

// again tells whether a field came before, and remembers that it came. That two look the same harms nobody.
func (e *Encoder) again(hash uint64) bool {
	seen := &e.once[hash>>32%slots]
	if slices.Contains(seen[:], uint16(hash>>8)) {
		return true
	}
	copy(seen[1:], seen[:])
	seen[0] = uint16(hash >> 8)
	return false
}

// place gives the place of an entry that has gone or, where none has, of the oldest.
func (e *Encoder) place(slot *[ways]ref) *ref {
	oldest, most := &slot[0], int64(-1)
	for i, r := range slot {
		if age := int64(e.age(r)); r&fixed == 0 && age > most {
			oldest, most = &slot[i], age
		}
	}
	return oldest
}

// age is how many entries came after the one that r leads to; one that has gone is as old as the table is long, or older.
func (e *Encoder) age(r ref) uint64 { return uint64((ref(e.newest) - r) &^ fixed) }

// at gives the entry that r leads to, and its age; nil for one that has gone.
func (e *Encoder) at(r ref) (*pair, uint64) {
	age := e.age(r)
	if age >= e.newest+1-e.oldest {
		return nil, 0
	}
	return e.entry(e.newest - age), age
}

// entry is where an entry is kept.
func (e *Encoder) entry(id uint64) *pair { return &e.ring[id&uint64(len(e.ring)-1)] }

// match gives the index of the entry that r leads to, 0 if it is another field's or gone.
func (e *Encoder) match(r ref, name, value string) uint64 {
	if r&fixed != 0 {
		i := uint64(r &^ fixed)
		if p := &static[i-1]; p.value == value && p.name == name {
			return i
		}
		return 0
	}
	if p, age := e.at(r); p != nil && p.value == value && p.name == name {
		return index(age)
	}
	return 0
}

// index is that of the entry of such an age (RFC 7541 section 2.3.3).
func index(age uint64) uint64 { return uint64(len(static)) + 1 + age }

// insert makes an entry of copies: the strings may be somebody's memory.
func (e *Encoder) insert(name, value string) ref {
	size := len(name) + len(value) + 32
	e.evict(size)
	if e.newest+1-e.oldest == uint64(len(e.ring)) {
		e.grow()
	}
	e.newest++
	e.size += size
	*e.entry(e.newest) = pair{strings.Clone(name), strings.Clone(value)}
	return ref(e.newest) &^ fixed
}

// grow makes room for twice as many entries.
func (e *Encoder) grow() {
	old := e.ring
	e.ring = make([]pair, max(firstRing, 2*len(old)))
	for id := e.oldest; id <= e.newest; id++ {
		*e.entry(id) = old[id&uint64(len(old)-1)]
	}
}

// evict makes room (RFC 7541 section 4.3).
func (e *Encoder) evict(room int) {
	for e.size+room > e.limit && e.oldest <= e.newest {
		p := e.entry(e.oldest)
		e.size -= len(p.name) + len(p.value) + 32
		*p = pair{}
		e.oldest++
	}
}

// literal appends a field that is not in the table, its name by index where that is.
func (e *Encoder) literal(dst []byte, first byte, bits uint, nameHash uint64, name, value string) []byte {
	i := staticNames[name]
	if p, age := e.at(e.names[nameHash%entries]); p != nil && p.name == name {
		i = index(age)
	}
	dst = appendInt(dst, first, bits, i)
	if i == 0 {
		dst = appendInt(dst, 0, 7, uint64(len(name)))
		dst = append(dst, name...)
	}
	dst = appendInt(dst, 0, 7, uint64(len(value)))
	return append(dst, value...)
}

// appendInt appends an integer in a prefix of so many bits (RFC 7541 section 5.1).
func appendInt(dst []byte, first byte, bits uint, n uint64) []byte {
	most := uint64(1)<<bits - 1
	if n < most {
		return append(dst, first|byte(n))
	}
	dst = append(dst, first|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}
