package testaddr

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// given has the addresses that Free gave in this process.
var given sync.Map

// Free gives an address of an IP that nobody listens on, and none twice. Its
// port is below those that the system gives out by itself, to whoever listens
// on port 0 or connects (ip_local_port_range): what is to listen there may take
// its time.
func Free(t testing.TB, ip string) string {
	t.Helper()
	for {
		address := net.JoinHostPort(ip, strconv.Itoa(20000+rand.IntN(10000))) //nolint:gosec // no secret
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		l, err := Listen(context.Background(), address)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
}
