package interop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
)

// Envoy acknowledges an assignment when its main thread has handed it to the
// workers, whether they have taken it or not. But a worker takes what was handed to
// it before it reads another request, so that none that it had not begun to read at the ACK goes to
// an endpoint that was taken out (docs/design/0010).
func TestEnvoyAcknowledgesBeforeItsWorkers(t *testing.T) {
	t.Parallel()
	const workers = 2
	w := newWorld(t, nil)
	one, two := meshtest.StartBackend(t, "one"), meshtest.StartBackend(t, "two")
	w.pods(t, "http", "", one.Address, two.Address)
	e := interoptest.StartEnvoyWorkers(t, bootstrap.Options{NodeID: "envoy", XDSAddress: w.address}, workers)
	first := &meshtest.Client{Address: e.Outbound}
	defer first.Close()
	testwait.Within(t, startTime, "answered by one", func() bool {
		_, body, err := first.Get("echo.default:8080")
		return err == nil && body == "one"
	})
	w.growUp(t)
	var lines []*line
	for range 8 {
		l := &line{t: t, address: e.Outbound}
		l.send()
		l.answer()
		lines = append(lines, l)
	}

	release := e.StopThreads(t, "wrk:worker_")
	for _, l := range lines[:4] {
		l.send()
	}
	w.pods(t, "http", one.Address, one.Address, two.Address)
	if status, body := meshtest.Ask(t, w.control.Admin, "/drain?timeout=10s&endpoint="+one.Address); status != http.StatusOK {
		t.Errorf("no worker has run, and the answer is no more that it is drained, so Envoy has changed: %d %s", status, body)
	}
	for _, l := range lines[4:] {
		l.send()
	}
	release()
	for i, l := range lines {
		if got := l.answer(); got != "two" {
			t.Errorf("request %d of 8, which came while no worker ran, was answered by %q", i+1, got)
		}
	}
}

// line is a connection on which a request is sent, and answered later.
type line struct {
	t       *testing.T
	address string
	conn    net.Conn
	reader  *bufio.Reader
}

func (l *line) send() {
	l.t.Helper()
	if l.conn == nil {
		conn, err := net.Dial("tcp", l.address)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { conn.Close() })
		l.conn, l.reader = conn, bufio.NewReader(conn)
	}
	if err := l.conn.SetDeadline(time.Now().Add(soon)); err != nil {
		l.t.Fatal(err)
	}
	if _, err := fmt.Fprint(l.conn, "GET / HTTP/1.1\r\nHost: echo.default:8080\r\n\r\n"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) answer() string {
	l.t.Helper()
	response, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(body)
}
