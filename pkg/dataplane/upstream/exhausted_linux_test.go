package upstream

import (
	"net"
	"syscall"
	"testing"
)

// TestNoDescriptorIsOurs: without a file descriptor nobody can be dialled, which
// is no failure of the endpoint, and must not eject it.
func TestNoDescriptorIsOurs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := New(Config{Address: l.Addr().(*net.TCPAddr).AddrPort()})
	defer p.Close()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	_, err = p.Dial(t.Context())
	if r := ReasonOf(err); r != ConnectionLimit || r.Dial() || r.Layer() != Self {
		t.Errorf("%v", err)
	}
}
