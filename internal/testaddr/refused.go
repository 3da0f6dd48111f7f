package testaddr

import (
	"net/netip"
	"syscall"
	"testing"
)

// Refused gives an address of 127.0.0.1 that refuses every connection until the
// test ends. It is bound and not listened on, so that nobody else gets it
// meanwhile, as happens to the address of a listener that was closed.
func Refused(t testing.TB) string {
	t.Helper()
	loopback := netip.MustParseAddr("127.0.0.1")
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(name.(*syscall.SockaddrInet4).Port)).String() //nolint:gosec // a port
}
