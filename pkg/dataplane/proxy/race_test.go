//go:build race

package proxy_test

// raced: under the race detector a sync.Pool drops things on purpose.
const raced = true
