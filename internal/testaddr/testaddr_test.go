package testaddr_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// A process that starts others all the time can listen again on what it has
// closed. A plain listener fails within some hundred attempts.
func TestListenWhileForking(t *testing.T) {
	if os.Getenv("CHILD") != "" {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestListenWhileForking$")
				c.Env = append(os.Environ(), "CHILD=1")
				_ = c.Run()
			}
		})
	}
	address := "127.0.0.1:0"
	for range 5000 {
		l, err := testaddr.Listen(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	seen := make(map[string]bool)
	for range 200 {
		address := testaddr.Free(t, "127.0.0.1")
		if seen[address] {
			t.Fatalf("%s was given twice", address)
		}
		seen[address] = true
	}
	// TEST-NET-1 (RFC 5737): no machine has it.
	if address, err := testaddr.Find(t.Context(), "192.0.2.1"); err == nil {
		t.Errorf("%s can be listened on", address)
	}
}

// What was closed is soon somebody else's: an address that refuses is not.
func TestRefused(t *testing.T) {
	address := testaddr.Refused(t)
	for range 100 {
		l, err := testaddr.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if l.Addr().String() == address {
			t.Fatal("given to somebody else")
		}
	}
	if l, err := testaddr.Listen(t.Context(), address); err == nil {
		_ = l.Close()
		t.Error("can be listened on")
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection ends with %v", err)
	}
}
