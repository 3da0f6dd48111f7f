//go:build race

package http2

// raced: the race detector allocates, and has sync.Pool drop things at random.
const raced = true
