package ads_test

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzStream feeds the core any sequence of requests, store changes and times,
// as the bytes say, and holds it against the model in model_test.go.
func FuzzStream(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { runModel(t, data) })
}

// TestStreamProperty is the same in ordinary test runs, with other bytes each time.
func TestStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			runModel(t, rapid.SliceOfN(rapid.Byte(), 50, 600).Draw(t, "input"))
		}
	})
}

// seeds begin with the set-up (setUp) and go on with steps (model.step).
var seeds = []string{
	"",
	// delta and SotW, every step once
	"\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
	"\x01\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
	// a little log, a little response, few names
	"\x00\x02\x01\x01\x01\x01\x01abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
	"\x01\x02\x01\x01\x01\x01\x01ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
	"\x00\x01\x00\x01\x00\x01\x000123456789012345678901234567890123456789012345678901",
	"\x01\x01\x00\x01\x00\x01\x009876543210987654321098765432109876543210987654321098",
}
