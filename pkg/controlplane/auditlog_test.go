package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/test/bufconn"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/auditlog"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
)

// fullPipe gives a pipe that takes no more, as a disk does that hangs, and its descriptor.
func fullPipe(t *testing.T) (path string, fd int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Close(fd); err != nil {
			t.Error(err)
		}
	})
	for {
		if _, err := syscall.Write(fd, make([]byte, 4096)); errors.Is(err, syscall.EAGAIN) {
			return path, fd
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A file that takes nothing must not keep the server from its end.
func TestEndWithAnAuditLogThatHangs(t *testing.T) {
	path, fd := fullPipe(t)
	log := auditlog.New(auditlog.Config{Path: path})
	s := controlplane.New(controlplane.Config{
		Source: newObjects(serviceOf("a")), ClusterDomain: "cluster.local", Policy: meshtest.Policy, Build: "test",
		Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(), AuditLog: log,
	})
	ctx, stop := context.WithCancel(t.Context())
	done, listener := make(chan error, 1), bufconn.Listen(1<<16)
	go func() { done <- s.Run(ctx, listener, bufconn.Listen(1<<16)) }()
	client, err := listener.DialContext(t.Context())
	if err == nil {
		_, err = client.Read(make([]byte, 1)) // its settings: it serves
	}
	if err := errors.Join(err, client.Close()); err != nil {
		t.Fatal(err)
	}
	log.Record(func() any { return "the last line" })
	stop()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-limit.C:
		t.Error("the server does not end")
	}
	// The writer ends once it can, here within the test.
	all, buffer := []byte{}, make([]byte, 64<<10)
	for end := time.Now().Add(10 * time.Second); !bytes.Contains(all, []byte("the last line\"\n")); {
		n, err := syscall.Read(fd, buffer)
		switch {
		case err == nil:
			all = append(all, buffer[:n]...)
		case !errors.Is(err, syscall.EAGAIN) || time.Now().After(end):
			t.Fatalf("read: %v", err)
		}
	}
}
