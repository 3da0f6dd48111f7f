package proxy

import (
	"errors"
	"io"
	"testing"
)

// TestBodyMovesAtTheLimit: another attempt takes over while the former one
// reads across the limit of what is kept. It gets all of the body.
func TestBodyMovesAtTheLimit(t *testing.T) {
	src, client := io.Pipe()
	b := &body{src: src}
	first := b.next()
	go func() { _, _ = client.Write(make([]byte, replayLimit-10)) }()
	if _, err := io.ReadFull(first, make([]byte, replayLimit-10)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := first.Read(make([]byte, 100))
		done <- err
	}()
	// The former attempt holds the lock for as long as it reads.
	for b.mu.TryLock() {
		b.mu.Unlock()
	}
	second := b.next()
	go func() {
		_, _ = client.Write(make([]byte, 100))
		_ = client.Close()
	}()
	if err := <-done; !errors.Is(err, errBodyMoved) {
		t.Errorf("the former attempt read: %v", err)
	}
	if all, err := io.ReadAll(second); err != nil || len(all) != replayLimit+90 {
		t.Errorf("%d bytes, %v", len(all), err)
	}
}
