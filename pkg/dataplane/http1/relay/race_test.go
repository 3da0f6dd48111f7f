//go:build race

package relay_test

// raced: under the race detector a sync.Pool drops things on purpose.
const raced = true
