package balance

import (
	"math/rand/v2"
	"sort"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Out tells why an endpoint is out, whatever its health.
type Out uint8

// The ways of being out.
const (
	// In is not out.
	In Out = iota
	// Doubted endpoints answer badly; they are used when nothing else is usable.
	Doubted
	// Gone endpoints cannot be reached; they are never picked.
	Gone
)

// Entry is an endpoint to choose from. It must not be changed once a picker has it.
type Entry struct {
	mesh.Endpoint
	// Load is never nil and belongs to the endpoint, not to the picker.
	Load *Load
	Out  Out
	// Since is when the endpoint became usable, for slow start; zero for long ago.
	Since time.Time
	// Owner is whatever the caller wants back with a pick; may be nil.
	Owner any
}

// Request is what a pick depends on.
type Request struct {
	Now time.Time
	// Hash chooses the endpoint of a ring or table; other policies ignore it.
	Hash uint64
	// Tried are the endpoints that this request has been to; they are not
	// picked again. May be nil.
	Tried []mesh.EndpointKey
}

// Policy is how to choose among equals.
type Policy int

// The policies.
const (
	LeastRequest Policy = iota
	RoundRobin
	Random
	RingHash
	Maglev
)

func (p Policy) hashes() bool { return p == RingHash || p == Maglev }

// Config is how a Picker chooses. Zero fields take the defaults given; it is comparable.
type Config struct {
	Policy Policy
	// MinRing and MaxRing bound the points of the ring of RingHash (1,024 and 8,388,608).
	MinRing, MaxRing int
	// Table is the size of the table of Maglev, a prime (65,537).
	Table int
	// LocalityWeighted shares the load of a priority among its localities by their weights.
	LocalityWeighted bool
	// Overprovisioning is by how much the healthy part of a priority or locality is multiplied (1.4).
	Overprovisioning float64
	// Panic is the part of usable endpoints, 0 to 1, below which all of a
	// priority are used, UNHEALTHY ones too, unless all priorities together
	// can take the whole load; 0 for never.
	Panic     float64
	SlowStart SlowStart
}

// The defaults of Config.
const (
	DefaultMinRing          = 1024
	DefaultMaxRing          = 1 << 23
	DefaultTable            = 65537
	DefaultOverprovisioning = 1.4
)

func (c Config) complete() Config {
	if c.MinRing <= 0 {
		c.MinRing = DefaultMinRing
	}
	if c.MaxRing <= 0 {
		c.MaxRing = DefaultMaxRing
	}
	if c.Table <= 0 {
		c.Table = DefaultTable
	}
	if c.Overprovisioning <= 0 {
		c.Overprovisioning = DefaultOverprovisioning
	}
	c.SlowStart = c.SlowStart.complete()
	return c
}

// Picker chooses. Immutable but for the position of round robin; safe for concurrent use.
type Picker struct {
	cfg Config
	// buckets are the usable entries in the order in which a request that has
	// tried one goes on to the next; none is empty.
	buckets []bucket
	// upTo[i] is the part of the load that goes to buckets[:i+1].
	upTo   []float64
	usable int
}

// bucket is the entries of one priority and health.
type bucket struct {
	// groups are its localities, or one for all of them.
	groups []*group
	// upTo[i] is the part of the bucket's load that goes to groups[:i+1]; nil with one group.
	upTo []float64
}

// New makes a picker. Entries that are the same pointers as in old, which may
// be nil, are kept with what was made of them. entries is not kept.
func New(cfg Config, entries []*Entry, old *Picker) *Picker {
	p := &Picker{cfg: cfg.complete()}
	known := groupsOf(old, p.cfg)
	whole := 0.0
	for _, s := range survey(p.cfg, entries).spread(p.cfg) {
		b := bucket{}
		for _, d := range s.drafts {
			b.groups = append(b.groups, d.finish(p.cfg, known[d.id]))
			p.usable += d.usable
		}
		b.upTo = localityShares(p.cfg, s.drafts)
		whole += s.load
		p.buckets = append(p.buckets, b)
		p.upTo = append(p.upTo, whole)
	}
	return p
}

// Usable is how many endpoints can be picked.
func (p *Picker) Usable() int { return p.usable }

// Pick gives an entry, and nil when every usable one has been tried.
func (p *Picker) Pick(r Request) *Entry {
	if len(p.buckets) == 0 {
		return nil
	}
	u, v := 0.0, 0.0
	if len(p.buckets) > 1 || len(p.buckets[0].groups) > 1 {
		u, v = rand.Float64(), rand.Float64()
		if p.cfg.Policy.hashes() {
			// The same hash stays with the same priority; it says nothing of the point of the ring.
			u = unit(r.Hash)
		}
	}
	first := choose(p.upTo, u)
	if e := p.buckets[first].pick(&p.cfg, &r, v); e != nil {
		return e
	}
	for i := range p.buckets {
		if i == first {
			continue
		}
		if e := p.buckets[i].pick(&p.cfg, &r, v); e != nil {
			return e
		}
	}
	return nil
}

func (b *bucket) pick(cfg *Config, r *Request, v float64) *Entry {
	first := choose(b.upTo, v)
	if j := b.groups[first].pick(cfg, r); j >= 0 {
		return b.groups[first].members[j]
	}
	for i, g := range b.groups {
		if i == first {
			continue
		}
		if j := g.pick(cfg, r); j >= 0 {
			return g.members[j]
		}
	}
	return nil
}

// choose gives the index of the part that u, 0 ≤ u < 1, falls into.
func choose(upTo []float64, u float64) int {
	if len(upTo) < 2 || upTo[len(upTo)-1] == 0 {
		return 0
	}
	x := u * upTo[len(upTo)-1]
	// A part that is empty ends where the one before it ends, so it is never the first above x.
	return min(sort.Search(len(upTo), func(i int) bool { return upTo[i] > x }), len(upTo)-1)
}

// unit makes a number in [0, 1) of a hash, by the finalizer of SplitMix64, so
// that it is independent of the hash's order.
func unit(hash uint64) float64 { return float64(mix(hash)>>11) / (1 << 53) }

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
