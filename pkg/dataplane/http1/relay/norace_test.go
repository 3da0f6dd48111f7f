//go:build !race

package relay_test

const raced = false
