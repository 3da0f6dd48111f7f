//go:build !race

package http2

const raced = false
