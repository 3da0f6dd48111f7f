package http2

import (
	"net/netip"
	"testing"
)

// TestFullOfOne: one connection and one request are told as one.
func TestFullOfOne(t *testing.T) {
	for _, c := range []struct {
		conns, patients int
		want            string
	}{
		{1, 1, "1 connection carries all the streams that the endpoint allows, and 1 request waits for a place"},
		{2, 0, "2 connections carry all the streams that the endpoint allows, and 0 requests wait for a place"},
		{0, 3, "0 connections carry all the streams that the endpoint allows, and 3 requests wait for a place"},
	} {
		p := &Pool{cfg: PoolConfig{Address: netip.MustParseAddrPort("127.0.0.1:1")}, patients: c.patients}
		for range c.conns {
			p.conns = append(p.conns, &endpointConn{})
		}
		if got := p.full().Err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
