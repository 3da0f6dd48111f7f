//go:build !race

package interoptest

// buildFlags: the program is built as the test is.
var buildFlags []string
