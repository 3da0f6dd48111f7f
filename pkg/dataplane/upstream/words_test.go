package upstream

import (
	"errors"
	"net/netip"
	"testing"
)

func TestProxyStatusIsQuoted(t *testing.T) {
	e := &Error{Reason: ConnectRefused, NextHop: netip.MustParseAddrPort("[fd00::1]:80"), Err: errors.New("say \"a\\b\"\r\nüber")}
	want := `freshmesh; error=connection_refused; next-hop="[fd00::1]:80"; details="say \"a\\b\"????ber"; layer=connection; reason=connect_refused`
	if got := e.ProxyStatus(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := percentEncoded("100% ü\n"); got != "100%25 %C3%BC%0A" {
		t.Errorf("grpc-message %q", got)
	}
}
