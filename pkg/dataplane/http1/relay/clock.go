package relay

import "time"

// instant is a point of the monotonic clock in nanoseconds; 0 is none. In a
// testing/synctest bubble, whose clock is another, instants may be below 0.
type instant int64

// base is a second ago, so that no instant is 0.
var base = time.Now().Add(-time.Second)

func now() instant { return instant(time.Since(base)) }

func (i instant) after(d time.Duration) instant { return i + instant(d) }

func (i instant) time() time.Time { return base.Add(time.Duration(i)) }

// at is t as an instant; none for the zero time.
func at(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	if i := instant(t.Sub(base)); i != 0 {
		return i
	}
	return 1
}

// in is the instant after d from now; none if d is not above 0.
func fromNow(d time.Duration) instant {
	if d <= 0 {
		return 0
	}
	return now().after(d)
}

// earliest of those that are set.
func earliest(a, b instant) instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
