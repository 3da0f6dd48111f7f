package limit

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const childVariable = "FRESHMESH_TEST_NOFILE"

// TestOutOfFiles: with no file descriptor left nothing new is accepted, what is
// there goes on, and accepting goes on when some come free. It runs in a process
// of its own, with few.
func TestOutOfFiles(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutOfFiles$", "-test.v", "-test.timeout=60s")
		self.Env = append(os.Environ(), childVariable+"=1")
		if out, err := self.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var mu sync.Mutex
	refused := 0
	shared := &Connections{Refused: func(r upstream.Reason) {
		mu.Lock()
		defer mu.Unlock()
		if r == upstream.ConnectionLimit {
			refused++
		}
	}}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(raw, shared)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	talk := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	first, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if err := talk(first); err != nil {
		t.Fatal(err)
	}
	// The client's socket is there before the last descriptor goes.
	var held []*os.File
	late := make(chan net.Conn, 1)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		held = append(held, f)
	}
	at := raw.Addr().(*net.TCPAddr)
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for seen := 0; seen == 0; {
		if time.Now().After(deadline) {
			t.Fatal("nothing was refused")
		}
		if err := talk(first); err != nil {
			t.Fatalf("established connection: %v", err)
		}
		mu.Lock()
		seen = refused
		mu.Unlock()
	}
	for _, f := range held {
		_ = f.Close()
	}
	f := os.NewFile(uintptr(fd), "client")
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	late <- c
	defer func() { _ = c.Close() }()
	if err := talk(<-late); err != nil {
		t.Errorf("after descriptors came free: %v", err)
	}
}

func TestMemory(t *testing.T) {
	m := &Memory{Limit: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !m.Over(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("never over a limit of one byte")
		}
	}
	cancel()
	wg.Wait()
	if m.Over() {
		t.Error("over after the end")
	}
}
