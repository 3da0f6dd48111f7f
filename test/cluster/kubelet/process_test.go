package kubelet

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"
)

// What a test reads from the trace may not depend on who of those that wait for an end runs first.
func TestTheTraceHearsFirst(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	deaf := t.TempDir() + "/deaf"
	if err := os.WriteFile(deaf, []byte("#!/bin/sh\ntrap '' TERM\necho deaf\nwhile :; do sleep 0.1; done\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	heard, goOn := make(chan string), make(chan struct{})
	said, out := io.Pipe()
	p, err := run(deaf, entry{Args: []string{deaf}}, null, out, func(what, _ string) {
		if what != "started" {
			heard <- what
			<-goOn
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	go p.stop(time.Millisecond)
	var all []string
	for range 2 {
		all = append(all, <-heard)
		select {
		case <-p.ended:
			t.Errorf("who waits for the end did not wait for the trace: %q", all)
		default:
		}
		goOn <- struct{}{}
	}
	<-p.ended
	if want := []string{"SIGKILL", "ended"}; !slices.Equal(all, want) {
		t.Errorf("heard %q, want %q", all, want)
	}
}
