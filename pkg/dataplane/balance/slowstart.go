package balance

import (
	"math"
	"time"
)

// SlowStart gives an endpoint that has just become usable its share little by
// little, under LeastRequest and RoundRobin, as Envoy documents it: after t of a
// window w the weight is multiplied by max(min, (max(t, 1 s) / w) ^ (1 / aggression)).
type SlowStart struct {
	// Window is how long it takes; 0 for no slow start.
	Window time.Duration
	// Aggression above 1 gives more at the beginning (1).
	Aggression float64
	// Min is the least factor, above 0 (0.1).
	Min float64
}

// The defaults of SlowStart.
const (
	DefaultAggression = 1.0
	DefaultMinFactor  = 0.1
)

func (s SlowStart) complete() SlowStart {
	if s.Aggression <= 0 {
		s.Aggression = DefaultAggression
	}
	if s.Min <= 0 {
		s.Min = DefaultMinFactor
	}
	return s
}

// running tells whether what became usable at newest still starts.
func (s SlowStart) running(newest, now time.Time) bool {
	return s.Window > 0 && !newest.IsZero() && now.Before(newest.Add(s.Window))
}

// factor is above 0 and at most 1.
func (s SlowStart) factor(since, now time.Time) float64 {
	if !s.running(since, now) {
		return 1
	}
	age := max(now.Sub(since), time.Second)
	return min(1, max(s.Min, math.Pow(float64(age)/float64(s.Window), 1/s.Aggression)))
}
