package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/test/faults/mitm"
)

// What grpc-go does by itself, and its bootstrap has no field for.
const (
	keepalive = "Its keepalive decides, 5 min and 20 s, and its bootstrap has no field for it."
	backOff   = "Its back-off decides, up to 2 min after an outage as long as that, and its bootstrap has no field for it."
)

var some = []kind{dataplane, envoyDelta, grpcGo}

// faults are all the cases, in the order of the report.
var faults = slices.Concat(streamFaults, clockFaults, sourceFaults, diskFaults)

// streamFaults are those of the way between control plane and proxy, and of the two ends.
var streamFaults = []fault{
	{
		name: "no fault", short: some,
	},
	{
		name: "silent stall of one stream while pings pass", counts: fromBegin, short: some,
		begin: each(func(c *client) func() { return c.proxy.StallStreams(c.current()) }),
	},
	{
		name: "window updates withheld", counts: fromBegin, begin: withholdWindows, clients: []kind{dataplane, grpcGo},
	},
	{
		name: "responses of one type (EDS) swallowed", counts: fromBegin,
		begin: each(func(c *client) func() {
			current := c.current()
			return c.proxy.Swallow(func(m mitm.Message) bool { return endpoints(m) && current(m.Stream) })
		}),
	},
	{
		name: "ACKs swallowed", counts: fromBegin, lasts: outage,
		begin: each(func(c *client) func() {
			return c.proxy.Swallow(func(m mitm.Message) bool { return m.Direction == mitm.ToServer && m.IsAck })
		}),
	},
	{
		name: "half-open TCP", counts: fromBegin,
		begin:  each(func(c *client) func() { c.proxy.HalfOpen()(); return nil }),
		beyond: map[kind]string{grpcGo: keepalive},
	},
	{
		name: "clean cut", counts: fromBegin, begin: each(func(c *client) func() { c.proxy.Cut(false); return nil }),
	},
	{
		name: "control plane killed, restarted later", counts: fromEnd, begin: killServer, lasts: outage,
		short:  []kind{dataplane, envoyDelta},
		beyond: map[kind]string{grpcGo: backOff},
	},
	{
		name: "control plane stopped", counts: fromEnd, begin: (*world).stopServer, lasts: outage,
	},
	{
		name: "partition, connections survive", counts: fromEnd, lasts: outage, short: some,
		begin: each(func(c *client) func() { return c.proxy.Freeze() }),
	},
	{
		name: "partition, connections survive, outlier detection on", counts: fromEnd, lasts: outage, from: newOutlierFiles,
		begin:   each(func(c *client) func() { return c.proxy.Freeze() }),
		clients: []kind{envoyDelta, envoySotW}, short: []kind{envoyDelta},
	},
	{
		name: "partition, connections lost", counts: fromEnd, lasts: outage,
		begin:  each(func(c *client) func() { return c.proxy.HalfOpen() }),
		beyond: map[kind]string{grpcGo: keepalive},
	},
	{
		name: "rapid flips: 3 replacements in 2 s", short: some,
		change: func(w *world) {
			for i := range 3 {
				if i > 0 {
					w.wait(time.Second)
				}
				w.fleet.turnover()
			}
		},
	},
	{
		name: "every endpoint replaced at once", change: func(w *world) { w.fleet.replaceAll() }, short: some,
	},
	{
		name: "control-plane restart at the moment of replacement", counts: fromEnd,
		begin: killServer, lasts: func(scale) time.Duration { return 0 },
	},
	{
		name: "a response delayed past a newer one", begin: delayFirst,
		change: func(w *world) {
			w.fleet.turnover()
			w.wait(w.late / 4)
			w.fleet.turnover()
		},
	},
	{
		name:  "duplicate delivery",
		begin: each(func(c *client) func() { return c.proxy.Duplicate(nil) }),
	},
	{
		name: "frames of other streams delayed",
		begin: func(w *world) func() {
			return w.each(func(c *client) func() { return c.proxy.DelayOthers(discovery, w.late) })
		},
	},
	{
		// Less late than the others: a round trip of twice as long is more than ack-timeout anyway.
		name: "frames of the discovery stream delayed",
		begin: func(w *world) func() {
			return w.each(func(c *client) func() {
				return c.proxy.DelayOthers(func(s mitm.Stream) bool { return !discovery(s) }, w.late*3/5)
			})
		},
	},
	{
		name: "an address reused by another service, in a silent stall", counts: fromBegin,
		begin:  each(func(c *client) func() { return c.proxy.StallStreams(c.current()) }),
		change: func(w *world) { w.fleet.takeover() },
	},
	{
		name: "the node sleeps", counts: fromEnd, lasts: outage, clients: []kind{dataplane},
		begin: ofOurs(func(_ testing.TB, o *ours) func() {
			o.process.Signal(syscall.SIGSTOP)
			return func() { o.process.Signal(syscall.SIGCONT) }
		}),
	},
}

// sourceFaults are those of the way between the source and the control plane.
var sourceFaults = []fault{
	{
		name: "source watch silent", from: newAPI, later: sourceCheck, change: func(w *world) { w.fleet.replaceQuietly() },
		begin: toAPI(func(p *apiproxy.Proxy) func() {
			silent := func(on bool) { p.Set(func(f *apiproxy.Faults) { f.Silent["endpointslices"] = on }) }
			silent(true)
			return func() { silent(false) }
		}),
	},
	{
		name: "API server down", from: newAPI, counts: fromEnd, lasts: outage, later: sourceCheck,
		begin: toAPI(func(p *apiproxy.Proxy) func() { p.Stop(); return p.Start }),
	},
	{
		name: "API server overloaded (429)", from: newAPI, counts: fromEnd, lasts: outage, later: sourceCheck,
		begin: toAPI(func(p *apiproxy.Proxy) func() {
			answer := func(code int) { p.Set(func(f *apiproxy.Faults) { f.Status[""] = code }) }
			answer(429)
			p.Cut()
			return func() { answer(0) }
		}),
	},
	{
		// What follows the backup is done again by the controllers of a cluster, here by the change.
		name: "API server rewound to a backup", from: newAPI, later: sourceCheck,
		begin: func(w *world) func() {
			restore := w.source.(*api).backup()
			w.fleet.turnover()
			w.wait(time.Second)
			restore()
			return nil
		},
		change: func(w *world) { w.fleet.replaceQuietly() },
	},
}

// diskFaults are those of the data plane's --state-dir.
var diskFaults = []fault{
	{
		name: "state directory full", clients: []kind{dataplane},
		begin: ofOurs(func(t testing.TB, o *ours) func() {
			t.Helper()
			fill(t, o.process.Pid())
			return nil
		}),
	},
	{
		name: "state file corrupt, data plane restarted", counts: fromBegin, clients: []kind{dataplane},
		begin: ofOurs(func(t testing.TB, o *ours) func() {
			t.Helper()
			corrupt(t, o.state)
			o.restart(t)
			return nil
		}),
	},
}

func outage(s scale) time.Duration { return s.outage }

// sourceCheck: what the source does not tell can be found out only by a live read.
func sourceCheck(s scale) time.Duration { return s.sourceCheck }

func each(do func(*client) func()) func(*world) func() {
	return func(w *world) func() { return w.each(do) }
}

func ofOurs(do func(testing.TB, *ours) func()) func(*world) func() {
	return func(w *world) func() {
		return w.each(func(c *client) func() { return do(w.t, c.ours) })
	}
}

func toAPI(do func(*apiproxy.Proxy) func()) func(*world) func() {
	return func(w *world) func() { return do(w.source.(*api).proxy) }
}

func endpoints(m mitm.Message) bool {
	return m.Direction == mitm.ToClient && m.TypeURL == string(mesh.TypeEndpoint)
}

// killServer kills the control plane. What ends the fault starts it again.
func killServer(w *world) (end func()) {
	w.server.Kill()
	return w.startServer
}

// withholdWindows withholds the updates, and lets the control plane send until the windows of
// now must be used up. New connections have windows for everything once.
func withholdWindows(w *world) (end func()) {
	end = w.each(func(c *client) func() { return c.proxy.HoldWindowUpdates(mitm.ToServer) })
	for i := range 10 {
		w.source.(files).ballast(w.t, i)
		w.wait(200 * time.Millisecond)
	}
	return end
}

// delayFirst delays the first endpoints that come to each client, and nothing else.
func delayFirst(w *world) (undo func()) {
	return w.each(func(c *client) func() {
		var done atomic.Bool
		return c.proxy.Delay(func(m mitm.Message) bool {
			return endpoints(m) && len(m.Names) > 0 && done.CompareAndSwap(false, true)
		}, w.late)
	})
}

// fill lets a process write no byte to any file.
func fill(t testing.TB, pid int) {
	t.Helper()
	if out, err := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--fsize=0").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, out)
	}
}

// corrupt waits for the state file, and overwrites a part of it.
func corrupt(t testing.TB, dir string) {
	t.Helper()
	path := filepath.Join(dir, "discovery.state")
	var text []byte
	testwait.Within(t, startTime, "a state file", func() (ok bool) {
		var err error
		text, err = os.ReadFile(path)
		return err == nil && len(text) > 100
	})
	copy(text[len(text)/2:], "not what was written")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
