package meshtest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// Log is a writer that keeps everything.
type Log struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String gives what was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Has tells whether one line has all the parts.
func (l *Log) Has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

func dump(t testing.TB, who string, l *Log) {
	t.Helper()
	if t.Failed() {
		t.Logf("%s logged:\n%s", who, l.String())
	}
}
