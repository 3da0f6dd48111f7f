package proxyproto

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRoundTrip(t *testing.T) {
	at := netip.MustParseAddrPort
	for _, h := range []Header{
		{},
		{at("10.0.0.1:1234"), at("10.0.0.2:80")},
		{at("[fd00::1]:1234"), at("[fd00::2]:80")},
		{at("10.0.0.1:1234"), at("[fd00::2]:80")},
	} {
		r := bytes.NewReader(append(h.Append(nil), "rest"...))
		got, err := Read(r)
		if err != nil || got != h || r.Len() != 4 {
			t.Errorf("%v: %v, %v, %d bytes left", h, got, err, r.Len())
		}
	}
}

func TestRefuses(t *testing.T) {
	good := string(Header{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")}.Append(nil))
	change := func(i int, b byte) string { return good[:i] + string([]byte{b}) + good[i+1:] }
	for what, in := range map[string]string{
		"empty": "", "cut": good[:20], "HTTP": "GET / HTTP/1.1\r\nHost: echo\r\n\r\n", "version 1": "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
		"version": change(12, 0x11), "command": change(12, 0x22), "family": change(13, 0x12), "short": change(15, 8),
		"huge": good[:14] + "\xff\xff" + strings.Repeat("a", 1<<16),
	} {
		if h, err := Read(strings.NewReader(in)); err == nil {
			t.Errorf("%s: %v", what, h)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Header{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := Read(bytes.NewReader(h.Append(nil)))
		if err != nil || again != h && h.Source.IsValid() && h.Destination.IsValid() {
			t.Errorf("%v became %v, %v", h, again, err)
		}
	})
}
