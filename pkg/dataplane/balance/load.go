package balance

import (
	"math"
	"sync"
	"time"
)

const (
	// Decay is the time in which an old sample loses all but 1/e of its weight.
	Decay = 10 * time.Second
	// Seed is what an endpoint that nobody has asked yet is taken to need, when
	// there is nobody to compare it with. Beside one that has been asked it is
	// taken to be as fast: against endpoints that answer in microseconds a
	// fixed seed would keep a new one idle for most of a minute.
	Seed = 30 * time.Millisecond
	// A failure counts as penaltyFactor times the estimate, and no less than
	// minPenalty, so that an endpoint which fails fast does not look fast. It
	// is relative because an estimate takes 2.3 times Decay to fall tenfold:
	// a fixed penalty would banish a fast endpoint for minutes. For the same
	// reason requests that fail together count as one failure.
	penaltyFactor = 10
	minPenalty    = 10 * time.Millisecond
	// worstPenalty bounds what failures in a row add up to, in times of the
	// last estimate before them: 23 s later a hundredth of the requests come
	// back, and find out. Without a bound six failures would banish an endpoint for minutes.
	worstPenalty = 100
)

// Load is what is known of an endpoint's latency and of the requests on it now:
// a peak-sensitive exponentially weighted moving average ("peak EWMA", as
// Finagle and linkerd have it). A slower sample replaces the estimate, a faster
// one is averaged in; with nothing heard, the estimate decays to zero, so that
// an endpoint which was slow once is tried again.
//
// The zero value is an endpoint that was never asked. Safe for concurrent use.
type Load struct {
	mu       sync.Mutex // guards all below
	ewma     float64    // seconds
	at       time.Time  // of ewma; zero until the first sample
	failedAt time.Time  // of the last failure that counted; zero until the first
	good     float64    // the estimate after the last answer that was no failure, or before the first failure
	avoid    time.Time  // until when the endpoint wants to be left alone; may be past
	inFlight int64
}

// Begin counts a request that starts.
func (l *Load) Begin() {
	l.mu.Lock()
	l.inFlight++
	l.mu.Unlock()
}

// End counts a request that ends, however it ends.
func (l *Load) End() {
	l.mu.Lock()
	l.inFlight--
	l.mu.Unlock()
}

// Observe takes in how long an answer took, rtt until its headers; ok is false
// for a failure. Failures of requests that began before the last one are part of it.
func (l *Load) Observe(now time.Time, rtt time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sample := max(rtt.Seconds(), 0)
	old := l.estimate(now)
	if !ok {
		factor := 1.0
		if began := now.Add(-rtt); began.After(l.failedAt) {
			factor, l.failedAt = penaltyFactor, now
		}
		if l.good == 0 {
			l.good = old
		}
		worst := max(l.good*worstPenalty, minPenalty.Seconds(), old)
		sample = max(sample, min(max(old*factor, minPenalty.Seconds()), worst))
	}
	if l.at.IsZero() || sample > old {
		l.ewma = sample
	} else {
		// The older the estimate, the more the new sample counts.
		keep := math.Exp(-float64(max(now.Sub(l.at), minStep)) / float64(Decay))
		l.ewma = old*keep + sample*(1-keep)
	}
	l.at = now
	if ok {
		l.good = l.ewma
	}
}

// minStep is the least age of an estimate that a sample is averaged into: at
// thousands of requests a second each one moves it a little all the same.
const minStep = time.Millisecond

// estimate needs mu.
func (l *Load) estimate(now time.Time) float64 {
	if l.at.IsZero() {
		return Seed.Seconds()
	}
	age := max(now.Sub(l.at), 0)
	return l.ewma * math.Exp(-float64(age)/float64(Decay))
}

// EWMA is the estimate at now.
func (l *Load) EWMA(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.estimate(now) * float64(time.Second))
}

// InFlight is how many requests are on the endpoint.
func (l *Load) InFlight() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// Forget makes the endpoint one that was never asked: it has come back, and is
// probably another process.
func (l *Load) Forget() {
	l.mu.Lock()
	l.ewma, l.good, l.at, l.failedAt, l.avoid = 0, 0, time.Time{}, time.Time{}, time.Time{}
	l.mu.Unlock()
}

// MaxAvoid bounds how long an endpoint may ask not to be asked.
const MaxAvoid = 300 * time.Second

// Avoid takes an endpoint's wish not to be asked for so long (Retry-After, RFC
// 9110 section 10.2.3), up to 300 s. It is honoured as long as there are others.
func (l *Load) Avoid(now time.Time, d time.Duration) {
	if d <= 0 {
		return
	}
	l.mu.Lock()
	l.avoid = now.Add(min(d, MaxAvoid))
	l.mu.Unlock()
}

// Outlast takes in that an answer has not come after so long: the estimate is
// at least that. Nothing is said where it is already.
func (l *Load) Outlast(now time.Time, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.estimate(now); waited.Seconds() > old {
		l.ewma, l.at = waited.Seconds(), now
	}
}

// Score is the cost of giving one more request to an endpoint of this weight,
// where 1 is the mean; less is better.
func (l *Load) Score(now time.Time, weight float64) float64 {
	return l.costs(now, weight).score(Seed.Seconds())
}

// costs is a Load at one moment.
type costs struct {
	estimate float64
	asked    bool
	avoid    bool
	// requests are those in flight by weight, and the one to come.
	requests float64
}

func (l *Load) costs(now time.Time, weight float64) costs {
	l.mu.Lock()
	defer l.mu.Unlock()
	return costs{l.estimate(now), !l.at.IsZero(), now.Before(l.avoid), float64(l.inFlight)/weight + 1}
}

// floor keeps an estimate that has decayed to nothing from hiding the requests in flight.
const floor = 1e-6

// score takes unasked for the estimate of an endpoint that was never asked.
func (c costs) score(unasked float64) float64 {
	if !c.asked {
		return max(unasked, floor) * c.requests
	}
	return max(c.estimate, floor) * c.requests
}

// moves is the chance that a request which was to go to c goes to o instead:
// none when o is no better, and else one less the inverse square of how much
// worse c is. An endpoint that is ten times slower keeps a hundredth. To take
// the better one every time would send nearly everything to whichever of two
// equals was faster by microseconds last.
func (c costs) moves(o costs) float64 {
	if c.avoid != o.avoid {
		if c.avoid {
			return 1
		}
		return 0
	}
	mine, theirs := c.score(o.estimate), o.score(c.estimate)
	if theirs >= mine {
		return 0
	}
	return 1 - theirs*theirs/(mine*mine)
}
