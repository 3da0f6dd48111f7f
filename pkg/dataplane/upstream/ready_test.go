package upstream_test

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// opening serves each connection by what it says first, after which it is reset.
func opening(t *testing.T, say func(net.Conn, *http2.Framer)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			say(c, http2.NewFramer(c, c))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A connection that ends right after the settings speaks HTTP/2 all the same:
// its end is what went wrong. Only what is none is called so.
func TestEndOfANewConnection(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(net.Conn, *http2.Framer)
		want upstream.Reason
	}{
		"reset without a word":     {func(net.Conn, *http2.Framer) {}, upstream.ConnectFailed},
		"reset after the settings": {func(_ net.Conn, f *http2.Framer) { _ = f.WriteSettings() }, upstream.ConnectFailed},
		"GOAWAY after the settings": {func(_ net.Conn, f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}, upstream.ConnectFailed},
		"settings that are none": {func(c net.Conn, f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
			_, _ = io.Copy(io.Discard, c)
		}, upstream.ProtocolError},
		"another protocol": {func(c net.Conn, _ *http2.Framer) {
			_, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, upstream.ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool(t, upstream.Config{Address: opening(t, c.say), HTTP2: true})
			for range 300 {
				conn, err := p.Acquire(t.Context())
				if err == nil {
					// It was had before its end was known.
					conn.Release()
				} else if got := upstream.ReasonOf(err); got != c.want {
					t.Fatalf("%s, want %s: %v", got, c.want, err)
				}
			}
		})
	}
}
