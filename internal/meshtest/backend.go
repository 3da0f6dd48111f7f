package meshtest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// Backend is an HTTP server that answers its name.
type Backend struct {
	Name string
	// Address is 127.0.0.1 and a port that stays the same over Kill and Revive.
	Address string

	t      testing.TB
	mu     sync.Mutex // guards server
	server *http.Server
	served chan error
}

// StartBackend starts one on a free port.
func StartBackend(t testing.TB, name string) *Backend {
	t.Helper()
	b := &Backend{Name: name, Address: "127.0.0.1:0", t: t}
	b.Revive()
	t.Cleanup(b.Kill)
	return b
}

// Kill closes the listener and every connection, as the end of a process does.
func (b *Backend) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return
	}
	if err := b.server.Close(); err != nil {
		b.t.Errorf("close backend %s: %v", b.Name, err)
	}
	<-b.served
	b.server = nil
}

// Revive starts it again on its port.
func (b *Backend) Revive() {
	b.t.Helper()
	listener, err := testaddr.Listen(context.Background(), b.Address)
	if err != nil {
		b.t.Fatalf("backend %s: %v", b.Name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Address = listener.Addr().String()
	b.server = &http.Server{Handler: http.HandlerFunc(b.answer)} //nolint:gosec // the client is the test
	b.served = make(chan error, 1)
	go func(s *http.Server, served chan<- error) { served <- s.Serve(listener) }(b.server, b.served)
}

func (b *Backend) answer(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, b.Name) }
