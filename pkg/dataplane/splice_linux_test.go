package dataplane_test

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// readBytes is how much this process has got by read(2) and its like; splice(2) does not count.
func readBytes(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("no /proc/self/io:", err)
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "rchar: "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no rchar")
	return 0
}

// TestSplice: what is relayed is read once, by the client at its end: the proxy
// in the middle leaves the bytes to the kernel.
func TestSplice(t *testing.T) {
	const size = 64 << 20
	control, addr := newControl(t)
	control.set(echo, tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) {
		b := make([]byte, 1<<20)
		for range size / len(b) {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}))
	r := start(t, addr, func(c *dataplane.Config) { c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: echo}} })
	before := readBytes(t)
	n, err := io.Copy(io.Discard, dial(t, r.addr[echo]))
	if err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if read := readBytes(t) - before; read < size || read > size*3/2 {
		t.Errorf("%d bytes were read for %d that arrived: the proxy copies them itself", read, size)
	}
}
