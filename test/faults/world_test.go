package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// startTime bounds what is no fault: the start of programs on a busy machine.
const startTime = time.Minute

// world is a control plane with its source, and its clients.
type world struct {
	scale
	t   testing.TB
	ip  netip.Addr
	xds string
	// admin is the control plane's.
	admin   string
	source  source
	fleet   *fleet
	server  *interoptest.Process
	clients []*client
}

// newWorld starts one in which every client is fresh and has had an answer from every endpoint.
func newWorld(t testing.TB, s scale, from func(testing.TB) source, kinds []kind) *world {
	t.Helper()
	w := &world{scale: s, t: t, ip: loopback(), source: from(t)}
	w.xds, w.admin = testaddr.Free(t, w.ip.String()), testaddr.Free(t, w.ip.String())
	w.fleet = newFleet(t, w.ip, w.source)
	w.fleet.publish(other, w.fleet.start(other, 1)...)
	w.fleet.publish(echo, w.fleet.start(echo, 4)...)
	w.startServer()
	for _, k := range kinds {
		w.clients = append(w.clients, startClient(t, w, k))
	}
	for _, c := range w.clients {
		w.warm(c)
	}
	w.wantFresh(startTime, nil)
	return w
}

// loopback gives an address that no other world has, where the system has more than one.
func loopback() netip.Addr {
	if runtime.GOOS != "linux" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	n := rand.Uint32() //nolint:gosec // no secret
	return netip.AddrFrom4([4]byte{127, byte(1 + n%250), byte(n >> 8), byte(1 + n>>16%250)})
}

// startServer starts the control plane, and waits until it serves.
func (w *world) startServer() {
	w.t.Helper()
	args := append([]string{
		"serve", "--xds-address", w.xds, "--admin-address", w.admin, "--probe-interval", w.probe.String(),
		"--ack-timeout", w.ack.String(), "--source-check-interval", w.sourceCheck.String(), "--log-level", "debug",
	}, w.source.args()...)
	w.server = interoptest.Start(w.t, exec.Command(filepath.Join(programs, "xds-server"), args...))
	testwait.Within(w.t, startTime, "the control plane ready", func() bool {
		status, err := ask(w.t.Context(), w.admin, "/readyz", nil)
		return err == nil && status == http.StatusOK
	})
}

// ask asks an admin address for a path, and decodes the answer into v unless that is nil.
func ask(ctx context.Context, address, path string, v any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if v != nil && response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(response.Body).Decode(v); err != nil {
			return 0, fmt.Errorf("decode %s: %w", path, err)
		}
	}
	return response.StatusCode, nil
}

// warm waits until every endpoint has answered through a client.
func (w *world) warm(c *client) {
	w.t.Helper()
	caller := c.dial()
	defer caller.close()
	endpoints, _ := w.fleet.now(echo)
	missing := make(map[string]bool)
	for _, e := range endpoints {
		missing[e.name] = true
	}
	testwait.Within(w.t, startTime, fmt.Sprintf("every endpoint used by %s", c.kind), func() bool {
		answer, _ := caller.call(echo)
		delete(missing, answer)
		return len(missing) == 0
	})
}

// wantFresh waits until the audit calls every client fresh, but for those that cannot be.
func (w *world) wantFresh(d time.Duration, cannot map[kind]string) {
	w.t.Helper()
	var last ack.Audit
	defer func() {
		if w.t.Failed() {
			text, _ := json.MarshalIndent(last.Nodes, "", " ")
			w.t.Logf("the audit says: %s", text)
		}
	}()
	testwait.Within(w.t, d, "every client fresh in the audit", func() bool {
		last = ack.Audit{}
		if _, err := ask(w.t.Context(), w.admin, "/audit", &last); err != nil {
			return false
		}
		fresh := make(map[mesh.NodeID]bool)
		for _, n := range last.Nodes {
			fresh[n.ID] = n.State == ack.Fresh
		}
		for _, c := range w.clients {
			if !fresh[mesh.NodeID(c.kind.node())] && cannot[c.kind] == "" {
				return false
			}
		}
		return true
	})
}

// wait lets time pass.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.t.Context().Done():
		w.t.Fatal("the test is over")
	}
}

// each does something to every client, and undoes all of it.
func (w *world) each(do func(*client) (undo func())) (undo func()) {
	var all []func()
	for _, c := range w.clients {
		all = append(all, do(c))
	}
	return func() {
		for _, undo := range all {
			if undo != nil {
				undo()
			}
		}
	}
}

// stopServer stops the control plane as a debugger does, and lets it go on.
func (w *world) stopServer() (undo func()) {
	w.server.Signal(syscall.SIGSTOP)
	return sync.OnceFunc(func() { w.server.Signal(syscall.SIGCONT) })
}
