package xdstest

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The transcripts in testdata show every command at work on the scripted
// server.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		RunTranscript(t, path, func(testing.TB) System { return newScripted().system() })
	})
}
