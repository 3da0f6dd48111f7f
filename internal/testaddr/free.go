package testaddr

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// given has the addresses that Find gave in this process, and that nobody gave back.
var given sync.Map

// draws is how often Find tries; there are 10,000 ports.
const draws = 100_000

var errNoneFree = errors.New("no free port from 20000 to 29999")

// Free is Find for tests. The address is given back when the test has ended.
func Free(t testing.TB, ip string) string {
	t.Helper()
	address, err := Find(context.Background(), ip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { given.Delete(address) })
	return address
}

// Find gives an address of an IP of this machine that nobody listens on, and none twice. Its
// port is below those that the system gives out by itself, to whoever listens
// on port 0 or connects (ip_local_port_range): what is to listen there may take
// its time.
func Find(ctx context.Context, ip string) (string, error) {
	for range draws {
		address := net.JoinHostPort(ip, strconv.Itoa(20000+rand.IntN(10000))) //nolint:gosec // no secret
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		l, err := Listen(ctx, address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("%s: %w", ip, errNoneFree)
}
