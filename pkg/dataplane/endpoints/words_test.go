package endpoints

import (
	"testing"
	"time"
)

// TestSumOfOne: one endpoint is told as one.
func TestSumOfOne(t *testing.T) {
	for _, tt := range []struct {
		all, ejected, failed int
		want                 string
	}{
		{0, 0, 0, "none of 0 endpoints of c is healthy since 12:00:00.000Z"},
		{1, 0, 0, "the only endpoint of c is not healthy since 12:00:00.000Z"},
		{1, 1, 0, "the only endpoint of c ejected since 12:00:00.000Z"},
		{1, 0, 1, "the only endpoint of c fails its health check, none usable since 12:00:00.000Z"},
		{2, 0, 0, "none of 2 endpoints of c is healthy since 12:00:00.000Z"},
		{2, 2, 0, "all 2 endpoints of c ejected since 12:00:00.000Z"},
		{3, 1, 1, "of 3 endpoints of c: 1 ejected, 1 failing the health check, none usable since 12:00:00.000Z"},
	} {
		c := &Cluster{name: "c", order: make([]*endpoint, tt.all)}
		c.availability.without = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
		if got := c.sum(tt.ejected, tt.failed); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
