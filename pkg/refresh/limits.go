package refresh

import "time"

// Limits bound what reports can cause. A zero field takes the default.
type Limits struct {
	// ReadsPerSecond (10) and ReadBurst (20) limit live reads in all.
	ReadsPerSecond float64
	ReadBurst      int
	// MaxReading (8) is how many live reads may be in flight.
	MaxReading int
	// ReadTimeout (5 s) ends a live read and the reconciliation after it.
	ReadTimeout time.Duration
	// Share (1 s) is how long after its beginning a live read answers for later reports.
	Share time.Duration
	// NodePerSecond (2) and NodeBurst (20) limit what the reports of one node
	// cause: resends, and live reads that nobody else has asked for.
	NodePerSecond float64
	NodeBurst     int
	// ResendBackOff (1 s) is the least time between two resends of one
	// cluster to one node; it doubles up to MaxResendBackOff (30 s) while the node stays behind.
	ResendBackOff, MaxResendBackOff time.Duration
	// MaxPairs (50,000) and MaxPairsPerNode (512) bound the pairs of node and
	// cluster that are remembered or wait; reports beyond them are dropped and counted.
	MaxPairs, MaxPairsPerNode int
	// MaxStrangers (5,000) bounds the pairs among them whose node this server never
	// saw subscribe to the cluster; all of those share the budget of one node.
	MaxStrangers int
	// MaxEndpoints (100,000) bounds the endpoints that waiting reports name;
	// reports beyond it count without names.
	MaxEndpoints int
	// Forget (2 min) is how long after its last report a pair is remembered.
	Forget time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		ReadsPerSecond: or(l.ReadsPerSecond, 10), ReadBurst: or(l.ReadBurst, 20),
		MaxReading: or(l.MaxReading, 8), ReadTimeout: or(l.ReadTimeout, 5*time.Second),
		Share:         or(l.Share, time.Second),
		NodePerSecond: or(l.NodePerSecond, 2), NodeBurst: or(l.NodeBurst, 20),
		ResendBackOff:    or(l.ResendBackOff, time.Second),
		MaxResendBackOff: or(l.MaxResendBackOff, 30*time.Second),
		MaxPairs:         or(l.MaxPairs, 50_000), MaxPairsPerNode: or(l.MaxPairsPerNode, 512),
		MaxStrangers: or(l.MaxStrangers, 5000), MaxEndpoints: or(l.MaxEndpoints, 100_000),
		Forget: or(l.Forget, 2*time.Minute),
	}
}

// or gives v, or def when v is not above zero.
func or[T int | float64 | time.Duration](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}

// bucket is a token bucket that is told the time.
type bucket struct {
	perSecond, burst, tokens float64
	at                       time.Time
}

func newBucket(perSecond float64, burst int, now time.Time) bucket {
	return bucket{perSecond: perSecond, burst: float64(burst), tokens: float64(burst), at: now}
}

func (b *bucket) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.burst, b.tokens+passed.Seconds()*b.perSecond)
		b.at = now
	}
}

// take takes one token if there is one.
func (b *bucket) take(now time.Time) bool {
	b.refill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long until there is a token; at least 1 ms when there is none,
// so that rounding never makes its owner spin.
func (b *bucket) wait(now time.Time) time.Duration {
	b.refill(now)
	if b.tokens >= 1 {
		return 0
	}
	return max(time.Millisecond, time.Duration((1-b.tokens)/b.perSecond*float64(time.Second)))
}

func (b *bucket) full(now time.Time) bool {
	b.refill(now)
	return b.tokens >= b.burst
}
