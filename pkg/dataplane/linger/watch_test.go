package linger

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: nothing is known of a connection that is no socket, so it is left after ToClose; what a peer says keeps it if that shows that it reads, and maxTotal bounds that.
func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		speaks bool
		n      int
		want   time.Duration
	}{
		{"silent", true, 0, ToClose},
		{"speaks", true, 1, maxTotal},
		{"sends what nobody wants", false, 1, ToClose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer func() { _, _ = near.Close(), far.Close() }()
				w := Watch{Conn: near, Speaks: tt.speaks}
				began := time.Now()
				for n := 0; ; n = tt.n {
					d, more := w.Next(n)
					if !more {
						break
					}
					time.Sleep(min(d, 100*time.Millisecond)) // bubble time
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("took %s, want %s", took, tt.want)
				}
			})
		})
	}
}
