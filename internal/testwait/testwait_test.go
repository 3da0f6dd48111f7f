package testwait_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// failing is a test that notes how it failed.
type failing struct {
	testing.TB
	with string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, _ ...any) {
	f.with = format
	runtime.Goexit()
}

// TestUntil: it ends as soon as that holds, and at Patience where it never does, with a failure.
func TestUntil(t *testing.T) {
	for _, tt := range []struct {
		name         string
		holds, takes time.Duration
	}{
		{"at once", 0, 0},
		{"later", 2 * time.Second, 2 * time.Second},
		{"never", time.Hour, testwait.Patience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, f := time.Now(), &failing{TB: t}
				done := make(chan struct{})
				go func() {
					defer close(done)
					testwait.Until(f, "it holds", func() bool { return time.Since(began) >= tt.holds })
				}()
				<-done
				if failed := strings.Contains(f.with, "not within"); failed != (tt.holds > testwait.Patience) {
					t.Errorf("failed: %v", failed)
				}
				if took := time.Since(began) - tt.takes; took < 0 || took > 10*time.Millisecond {
					t.Errorf("took %s more than %s", took, tt.takes)
				}
			})
		})
	}
}
