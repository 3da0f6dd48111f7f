package audit

import (
	"fmt"
	"time"
)

// Age says how long before now a time was, in one or two units: "now",
// "3s ago", "2m5s ago", "3h10m ago", "4d ago"; "never" for the zero time, and
// "now" for one that is later, as clocks of two servers differ.
func Age(now, at time.Time) string {
	switch d := now.Sub(at); {
	case at.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	default:
		return span(d) + " ago"
	}
}

// ageOf is Age of a time that may be missing: nil is "never".
func ageOf(now time.Time, at *time.Time) string {
	if at == nil {
		return "never"
	}
	return Age(now, *at)
}

// span gives whole seconds up to an hour, minutes up to two days, and days beyond.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
