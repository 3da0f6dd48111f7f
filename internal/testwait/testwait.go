// Package testwait waits in tests until something holds, which nothing tells of. It owns nothing, and imports nothing of
// ours, so that the tests inside any package can use it. What tells of itself, by a channel, needs no such wait; nor does
// what happens in a bubble of testing/synctest.
package testwait

import (
	"testing"
	"time"
)

// Patience is how long Until waits: much longer than anything takes on a loaded machine, as no test is about it.
const Patience = 30 * time.Second

// every is how often it is asked.
const every = 5 * time.Millisecond

// Until waits until holds gives true, and fails the test after Patience. what says in words what is to hold.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is Until with a bound: for what is promised to take no longer than d. It is the test's own goroutine that waits.
func Within(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(d); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}
