package kube

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// defaultRetryAfter is the wait where the server names none.
	defaultRetryAfter = time.Second
	// maxRetryAfter bounds the wait, whatever the server asks for.
	maxRetryAfter = time.Minute
)

// limits keeps what the server says of our requests being too many: after an
// answer 429 (RFC 6585, section 4) nothing is sent for as long as its Retry-After says. client-go would wait within
// the request, whose deadline then passes: that looks like a server which does not answer.
type limits struct {
	count prometheus.Counter

	mu sync.Mutex // guards all below
	// until is when something may be sent again, wait what the server asked for.
	until time.Time
	wait  time.Duration
}

func newLimits(r prometheus.Registerer) *limits {
	l := &limits{count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freshmesh_source_limited_total",
		Help: "Requests that the API server answered with 429: too many.",
	})}
	if r != nil {
		r.MustRegister(l.count)
	}
	return l
}

// limitedError is a request that the server did not take, or was not sent because of one before.
type limitedError struct{ wait time.Duration }

func (e *limitedError) Error() string {
	return "limits our requests (429), asks to wait " + e.wait.String()
}

// wrap puts the limits before a transport.
func (l *limits) wrap(next http.RoundTripper) http.RoundTripper { return limitedTransport{l, next} }

type limitedTransport struct {
	*limits
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if wait := t.asked(time.Now()); wait > 0 {
		return nil, &limitedError{wait}
	}
	answer, err := t.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusTooManyRequests {
		return answer, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // so that the connection can be used again
	_ = answer.Body.Close()
	wait := retryAfter(answer.Header.Get("Retry-After"), time.Now())
	t.limited(wait, time.Now())
	return nil, &limitedError{wait}
}

// asked gives for how long in all the server has asked to send nothing; 0 when that is over.
func (l *limits) asked(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.until) {
		return l.wait
	}
	return 0
}

// limited notes an answer 429. Replicas, which are all told the same, do not come back in step.
func (l *limits) limited(wait time.Duration, now time.Time) {
	l.count.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := now.Add(wait + rand.N(wait/8+1)); until.After(l.until) {
		l.until, l.wait = until, wait
	}
}

// retryAfter reads the header (RFC 9110, section 10.2.3): seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(max(time.Duration(n)*time.Second, defaultRetryAfter), maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now).Round(time.Second), defaultRetryAfter), maxRetryAfter)
	}
	return defaultRetryAfter
}
