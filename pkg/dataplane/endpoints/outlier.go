package endpoints

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// event is what a request tells of its endpoint.
type event uint8

const (
	// answerGood, answerBad (5xx) and answerGateway (502, 503, 504) came from upstream.
	answerGood event = iota
	answerBad
	answerGateway
	// localGood is a connection that was had, localBad none, a reset or a timeout.
	localGood
	localBad
)

// The words for what opinions go by; they stand beside the reasons of failed
// dials in the metric of ejections, in /clusters and in the log.
const (
	consecutive5xx     upstream.Reason = "consecutive_5xx"
	consecutiveGateway upstream.Reason = "consecutive_gateway_failure"
	consecutiveLocal   upstream.Reason = "consecutive_local_origin_failure"
	successRate        upstream.Reason = "success_rate"
	localSuccessRate   upstream.Reason = "local_origin_success_rate"
	failurePercentage  upstream.Reason = "failure_percentage"
	localFailures      upstream.Reason = "local_origin_failure_percentage"
)

// rate counts within one interval.
type rate struct{ good, all uint64 }

// percent is of at least one.
func (r rate) percent() float64 { return 100 * float64(r.good) / float64(r.all) }

// tally counts the events of one endpoint. Safe for concurrent use; it outlives the endpoint's pool.
type tally struct {
	mu sync.Mutex // guards all below
	// In a row.
	bad, gateway, local uint32
	// answers and dials are of the present interval.
	answers, dials rate
}

// note takes an event in, and gives what is found by it; "" for nothing. Unless
// failures of our side are kept apart they count as answers 503, and
// connections that were had count for nothing (Envoy, "Outlier detection").
func (t *tally) note(o *discovery.Outlier, e event) upstream.Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case o.Split && e == localBad:
		t.dials.all++
		return crossed(&t.local, o.ConsecutiveLocal, consecutiveLocal)
	case o.Split && e == localGood:
		t.dials.all++
		t.dials.good++
		t.local = 0
		return ""
	case e == localGood:
		return ""
	case e == answerGood:
		t.answers.all++
		t.answers.good++
		t.bad, t.gateway = 0, 0
		return ""
	}
	t.answers.all++
	found := crossed(&t.bad, o.Consecutive5xx, consecutive5xx)
	if e == answerBad {
		t.gateway = 0
		return found
	}
	if g := crossed(&t.gateway, o.ConsecutiveGateway, consecutiveGateway); g != "" && (found == "" || o.EnforceConsecutive5xx == 0) {
		return g
	}
	return found
}

// crossed counts and begins again at the limit; a limit of 0 is never reached.
func crossed(n *uint32, limit uint32, found upstream.Reason) upstream.Reason {
	if *n++; limit == 0 || *n < limit {
		return ""
	}
	*n = 0
	return found
}

// take gives the interval's rates and begins the next interval.
func (t *tally) take() (answers, dials rate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answers, dials = t.answers, t.dials
	t.answers, t.dials = rate{}, rate{}
	return answers, dials
}

// forget begins anew: what was counted speaks of the time before an ejection.
func (t *tally) forget() {
	t.mu.Lock()
	t.bad, t.gateway, t.local, t.answers, t.dials = 0, 0, 0, rate{}, rate{}
	t.mu.Unlock()
}

// opinion is the second state machine of the package comment, without I/O: an
// endpoint that answers badly. The zero value is trusted.
type opinion struct {
	// times counts ejections; it falls by one in each interval without.
	times int
	// until is when the trial may begin; zero while trusted.
	until   time.Time
	onTrial bool
	reason  upstream.Reason
}

func (p *opinion) ejected() bool { return !p.until.IsZero() }

// eject begins an ejection, or a longer one after a trial that failed.
func (p *opinion) eject(o *discovery.Outlier, now time.Time, why upstream.Reason) {
	p.times++
	length := min(o.BaseTime*time.Duration(min(p.times, 1<<16)), o.MaxTime)
	if o.Jitter > 0 {
		length += time.Duration(rand.Int64N(int64(o.Jitter)))
	}
	p.until, p.onTrial, p.reason = now.Add(length), false, why
}

// readmit ends an ejection.
func (p *opinion) readmit() { p.until, p.onTrial, p.reason = time.Time{}, false, "" }

// calm is an interval without ejection.
func (p *opinion) calm() {
	if !p.ejected() && p.times > 0 {
		p.times--
	}
}

// mayEject tells whether one more of so many may be ejected: up to the
// percentage, and always one.
func mayEject(o *discovery.Outlier, ejected, listed int) bool {
	return ejected == 0 || (ejected+1)*100 <= int(o.MaxPercent)*listed
}

// enforced rolls the dice of a finding's enforcing percentage.
func enforced(o *discovery.Outlier, found upstream.Reason) bool {
	percent := map[upstream.Reason]uint32{
		consecutive5xx: o.EnforceConsecutive5xx, consecutiveGateway: o.EnforceConsecutiveGateway,
		consecutiveLocal: o.EnforceConsecutiveLocal, successRate: o.EnforceSuccessRate,
		localSuccessRate: o.EnforceLocalSuccessRate, failurePercentage: o.EnforceFailurePercent,
		localFailures: o.EnforceLocalFailurePercent,
	}[found]
	return uint32(rand.IntN(100)) < percent
}

// outliersOf finds among rates those that are to be ejected, as indices; the
// rates of endpoints that are ejected already are left out by the caller. why
// are the words for the two findings.
func outliersOf(o *discovery.Outlier, rates []rate, byRate, byPercent upstream.Reason) map[int]upstream.Reason {
	found := map[int]upstream.Reason{}
	if lowest, ok := lowestRate(o, rates); ok {
		for i, r := range rates {
			if enough(r, o.SuccessRateRequests) && r.percent() < lowest {
				found[i] = byRate
			}
		}
	}
	hosts := 0
	for _, r := range rates {
		if enough(r, o.FailurePercentRequests) {
			hosts++
		}
	}
	if hosts == 0 || hosts < int(o.FailurePercentHosts) {
		return found
	}
	for i, r := range rates {
		if _, known := found[i]; !known && enough(r, o.FailurePercentRequests) && 100-r.percent() >= float64(o.FailurePercent) {
			found[i] = byPercent
		}
	}
	return found
}

func enough(r rate, requests uint32) bool { return r.all > 0 && r.all >= uint64(requests) }

// lowestRate is the mean success rate less so many standard deviations; false with too few endpoints.
func lowestRate(o *discovery.Outlier, rates []rate) (float64, bool) {
	n, sum, squares := 0.0, 0.0, 0.0
	for _, r := range rates {
		if enough(r, o.SuccessRateRequests) {
			n++
			sum += r.percent()
		}
	}
	if n == 0 || n < float64(o.SuccessRateHosts) {
		return 0, false
	}
	mean := sum / n
	for _, r := range rates {
		if enough(r, o.SuccessRateRequests) {
			squares += (r.percent() - mean) * (r.percent() - mean)
		}
	}
	return mean - math.Sqrt(squares/n)*float64(o.SuccessRateStdev)/1000, true
}
