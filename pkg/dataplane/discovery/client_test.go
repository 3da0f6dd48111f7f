package discovery

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/test/bufconn"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// world is a client with its servers, in time of their own.
type world struct {
	t       *testing.T
	server  *fakeServer
	servers map[string]*fakeServer
	applied *applied
	*Client
	stop func()
}

// bubble runs a test in its own time with a client of server "one", not yet running.
func bubble(t *testing.T, change func(*Config), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: newServer(t)}
		w.servers = map[string]*fakeServer{"one": w.server}
		w.build(change)
		f(w)
		if w.stop != nil {
			w.stop()
		}
	})
}

func (w *world) build(change func(*Config)) {
	w.t.Helper()
	w.applied = newApplied()
	config := Config{
		NodeID: "n", Namespace: "ns", Pod: "p", Zone: "z", Servers: []string{"one"},
		DialOptions: dialer(w.servers), Applier: w.applied,
	}
	if change != nil {
		change(&config)
	}
	var err error
	if w.Client, err = New(config); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		w.stop = nil
	}
	pass(time.Second)
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) // bubble time
	synctest.Wait()
}

// within asks for a cluster with a deadline.
func (w *world) within(d time.Duration, name string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	return w.Cluster(ctx, name)
}

// must gives the hosts of a cluster that has to be there within a second.
func (w *world) must(name string, hosts ...string) {
	w.t.Helper()
	c, err := w.within(time.Second, name)
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(hosts, hostsOf(c)); diff != "" {
		w.t.Errorf("%s (-want +got)\n%s", name, diff)
	}
	if diff := cmp.Diff(hosts, hostsOf(w.applied.get(name))); diff != "" {
		w.t.Errorf("%s applied (-want +got)\n%s", name, diff)
	}
}

func TestSubscribesOnDemandAndFollows(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		synctest.Wait()
		expect(t, w.server.log(), "stream", "cds node +"+helloName, "cds -"+helloName, "cds ACK 1",
			"cds +a", "eds +a", "cds ACK 2", "eds ACK 3")
		w.server.service("a", "2", "10.0.0.2")
		synctest.Wait()
		w.must("a", "10.0.0.2")
		if _, err := w.within(time.Second, "nobody"); !errors.Is(err, ErrUnknownService) {
			t.Errorf("error %v", err)
		}
		w.server.service("nobody", "1", "10.0.0.3")
		synctest.Wait()
		w.must("nobody", "10.0.0.3")
		w.server.remove(mesh.TypeCluster, "nobody")
		synctest.Wait()
		if _, err := w.within(time.Second, "nobody"); !errors.Is(err, ErrUnknownService) || w.applied.get("nobody") != nil {
			t.Errorf("error %v, applied %v", err, w.applied.get("nobody"))
		}
		for _, name := range []string{"", "*"} {
			if _, err := w.within(time.Second, name); !errors.Is(err, ErrUnknownService) {
				t.Errorf("%q: error %v", name, err)
			}
		}
		s := w.Status()
		if !s.Connected || s.Server != "one" || s.LastMessageAt.IsZero() || len(s.Clusters) != 2 ||
			s.Clusters[0].State != StateInForce || s.Clusters[1].State != StateAbsent {
			t.Errorf("status %+v", s)
		}
	})
}

func TestNackNamesTheBadResource(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		synctest.Wait()
		w.server.log()
		w.server.set(mesh.TypeEndpoint, eds("a", "2", "wrong"))
		synctest.Wait()
		got := w.server.log()
		if len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "eds NACK 4 a: ") {
			t.Errorf("requests %q", got)
		}
		w.must("a", "10.0.0.1")
	})
}

func TestPendingErrors(t *testing.T) {
	bubble(t, func(c *Config) { c.Servers = []string{"none"} }, func(w *world) {
		w.run()
		began := time.Now()
		_, err := w.within(3*time.Second, "a")
		if !errors.Is(err, ErrNeverConnected) || !errors.Is(err, ErrDiscoveryPending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
	bubble(t, nil, func(w *world) {
		w.server.deaf = true
		w.run()
		if _, err := w.within(3*time.Second, "a"); !errors.Is(err, ErrDiscoveryPending) || errors.Is(err, ErrNeverConnected) {
			t.Errorf("error %v", err)
		}
	})
}

// One cluster's answers are withheld while everything else passes. Only
// Distrust, which a failed dial leads to, can find that out before max age.
func TestWithheldClusterIsHealedByDistrust(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		bubble(t, func(c *Config) { c.DisableRefresh = disabled }, func(w *world) {
			w.server.service("a", "1", "10.0.0.1")
			w.server.service("b", "1", "10.0.0.9")
			w.run()
			w.must("a", "10.0.0.1")
			w.must("b", "10.0.0.9")
			name := mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}
			w.server.change(func() { w.server.withhold[name] = true })
			w.server.service("a", "2", "10.0.0.2")
			w.server.change(func() { delete(w.server.withhold, name) }) // only the push was lost
			pass(5 * time.Second)
			w.must("a", "10.0.0.1")
			w.Distrust("a")
			pass(100 * time.Millisecond)
			want := "10.0.0.2"
			if disabled {
				want = "10.0.0.1" // shows that the test bites
			}
			w.must("a", want)
		})
	}
}

// The stream itself loses a cluster's answers, whatever is asked on it.
func TestStuckStreamIsReplaced(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		name := mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}
		w.server.change(func() { w.server.withhold[name] = true })
		w.server.service("a", "2", "10.0.0.2")
		w.Distrust("a")
		pass(3900 * time.Millisecond)
		w.server.change(func() { delete(w.server.withhold, name) })
		w.server.log()
		pass(time.Second)
		if got := w.server.log(); !slices.Contains(got, "stream") {
			t.Errorf("no new stream: %q", got)
		}
		w.must("a", "10.0.0.2")
	})
}

func TestSilentServerIsLeft(t *testing.T) {
	bubble(t, func(c *Config) { c.Servers = []string{"one", "two"} }, func(w *world) {
		w.servers["two"] = newServer(w.t)
		w.server.service("a", "1", "10.0.0.1")
		w.servers["two"].service("a", "2", "10.0.0.2")
		w.run()
		w.must("a", "10.0.0.1")
		began := time.Now()
		w.server.change(func() { w.server.deaf = true })
		for w.Status().Server != "two" || !slices.Equal(hostsOf(w.applied.get("a")), []string{"10.0.0.2"}) {
			pass(100 * time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal("stays with a server that says nothing")
			}
			if w.applied.get("a") == nil {
				t.Fatal("out of force")
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("took %v, the bound is 20 s", took)
		}
	})
}

// A control plane of another make: it never probes, and ignores a subscription of what is subscribed.
func TestServerThatIgnoresResubscribesIsNotThrashed(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.noResend = true
		for _, n := range []string{"a", "b", "c"} {
			w.server.service(n, "1", "10.0.0.1")
		}
		w.run()
		for _, n := range []string{"a", "b", "c"} {
			w.must(n, "10.0.0.1")
		}
		synctest.Wait()
		w.server.log()
		for range 60 {
			pass(time.Minute)
			w.must("a", "10.0.0.1")
		}
		lines := w.server.log()
		if slices.Contains(lines, "stream") {
			t.Error("a healthy connection was given up")
		}
		if len(lines) > 9*3600/14 { // in 14 s: 2 re-subscribes, 2 times unsubscribe and subscribe, the answers' ACKs
			t.Errorf("%d requests in an hour", len(lines))
		}
	})
}

func TestUnansweredNameDoesNotCostTheConnectionForEver(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.server.change(func() {
			w.server.withhold[mesh.ResourceName{Type: mesh.TypeCluster, Name: "x"}] = true
			w.server.withhold[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "x"}] = true
		})
		w.run()
		w.must("a", "10.0.0.1")
		w.Subscribe("x")
		streams := 0
		for range 60 {
			pass(10 * time.Second)
			for _, l := range w.server.log() {
				if l == "stream" {
					streams++
				}
			}
		}
		if streams > 3 {
			t.Errorf("%d streams in ten minutes", streams)
		}
	})
}

func TestProbesAreAnsweredAndKeepTheWatchdogCalm(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		synctest.Wait()
		w.server.log()
		for range 12 {
			pass(10 * time.Second)
			w.server.probe()
			synctest.Wait()
			if got := w.server.log(); len(got) != 1 || !strings.HasPrefix(got[0], "cds ACK") {
				t.Fatalf("requests %q", got)
			}
		}
	})
}

// Whatever has gone wrong on the way: 20 s after it ended, what the control plane
// holds is in force. A push that was lost alone needs somebody to notice it.
func TestRandomFaultsHeal(t *testing.T) {
	names := []string{"a", "b", "c"}
	for seed := range uint64(25) {
		bubble(t, func(c *Config) { c.Servers = []string{"dead", "one"} }, func(w *world) {
			random := rand.New(rand.NewPCG(seed, 1))
			for _, n := range names {
				w.Subscribe(n)
			}
			w.run()
			for step := range 30 {
				w.fault(random, names, step)
				pass(time.Duration(random.Int64N(int64(8 * time.Second))))
			}
			for _, n := range names { // the last change, and dials that fail, come amidst the faults
				w.server.service(n, "last", "10.0.9.9")
				w.Distrust(n)
			}
			pass(time.Duration(random.Int64N(int64(time.Minute))))
			w.server.change(func() {
				clear(w.server.withhold)
				w.server.deaf, w.server.refuse = false, false
			})
			pass(20 * time.Second)
			for _, n := range names {
				if got := hostsOf(w.applied.get(n)); !slices.Equal(got, []string{"10.0.9.9"}) {
					t.Errorf("seed %d: %s has %v", seed, n, got)
				}
			}
		})
	}
}

func (w *world) fault(random *rand.Rand, names []string, step int) {
	name := names[random.IntN(len(names))]
	s := w.server
	switch random.IntN(9) {
	case 0:
		s.cut()
	case 1:
		s.change(func() { s.deaf = !s.deaf })
	case 2:
		s.change(func() { s.refuse = !s.refuse })
	case 3:
		s.change(func() { s.withhold[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: name}] = true })
	case 4:
		s.change(func() { s.withhold[mesh.ResourceName{Type: mesh.TypeCluster, Name: name}] = true })
	case 5:
		s.service(name, strconv.Itoa(step), "10.0.0."+strconv.Itoa(step+1))
	case 6:
		s.remove(mesh.TypeCluster, name)
	case 7:
		s.set(mesh.TypeEndpoint, eds(name, strconv.Itoa(step), "bad"))
	case 8:
		w.Distrust(name)
	}
}

func TestMaxAge(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		for range 3600 / 5 {
			pass(5 * time.Second)
			w.server.probe() // traffic does not make a resource younger
			synctest.Wait()
			w.must("a", "10.0.0.1")
			c, _ := w.within(0, "a")
			if age := time.Since(c.ConfirmedAt); age > 5*time.Minute {
				t.Fatalf("age %v", age)
			}
		}
		if calls := w.applied.calls; calls != 1 {
			t.Errorf("applied %d times, though nothing changed", calls)
		}
	})
}

// A server that takes the connection and then says nothing at all is left when the time is up.
func TestMuteServerIsLeft(t *testing.T) {
	bubble(t, func(c *Config) { c.Servers = []string{"mute", "one"} }, func(w *world) {
		mute := &fakeServer{listener: bufconn.Listen(1), hung: &atomic.Bool{}}
		w.servers["mute"] = mute
		accepted := make(chan struct{})
		go func() {
			defer close(accepted)
			for {
				conn, err := mute.listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
		}()
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		pass(6 * time.Second)
		w.must("a", "10.0.0.1")
		w.stop()
		_ = mute.listener.Close()
		<-accepted
	})
}

func TestReadyWithNothingToAsk(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.run()
		if s := w.Status(); !s.Connected || !s.Answered {
			t.Errorf("status %+v", s)
		}
	})
}

func TestReconnect(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		synctest.Wait() // the last ACK may still be on its way
		w.server.log()
		w.server.cut()
		pass(200 * time.Millisecond)
		expect(t, w.server.log(), "stream", "cds node +a a=1", "eds +a a=1")
		w.must("a", "10.0.0.1")

		// An outage: nothing leaves force, and waits grow to 10 s.
		w.server.change(func() { w.server.refuse = true })
		w.server.cut()
		pass(10 * time.Minute)
		w.must("a", "10.0.0.1")
		if n := len(w.server.log()); n < 60 || n > 240 {
			t.Errorf("%d streams in 10 minutes", n)
		}
		if s := w.Status(); s.Connected && !strings.Contains(s.LastError, "not synced") {
			t.Errorf("status %+v", s)
		}
		w.server.change(func() { w.server.refuse = false })
		w.server.service("a", "2", "10.0.0.2")
		pass(11 * time.Second)
		w.must("a", "10.0.0.2")

		// A message came, so the next wait is short again.
		w.server.cut()
		pass(200 * time.Millisecond)
		if got := w.server.log(); got[len(got)-1] != "eds +a a=2" {
			t.Errorf("requests %q", got)
		}
	})
}

func TestResetOfAll(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		synctest.Wait()
		w.server.log()
		w.Reset("")
		synctest.Wait()
		if w.applied.get("a") == nil {
			t.Error("out of force")
		}
		pass(200 * time.Millisecond)
		got := w.server.log()
		if len(got) != 5 || got[0] != "stream" || got[1] != "cds node +a" || got[2] != "eds +a" {
			t.Errorf("requests %q", got)
		}
	})
}

func TestStateSurvivesAnOutage(t *testing.T) {
	dir := t.TempDir()
	withState := func(c *Config) { c.StateDir = dir }
	bubble(t, withState, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		w.stop()

		w.server.stop()
		w.build(withState)
		w.run()
		w.must("a", "10.0.0.1")
		c, _ := w.within(0, "a")
		if s := w.Status(); !c.FromDisk || s.LoadedFromDisk != 1 || s.EverConnected {
			t.Errorf("cluster %+v, status %+v", c, s)
		}
		w.server.restart()
		w.server.log()
		pass(11 * time.Second)
		if got := w.server.log(); !slices.Contains(got, "cds node +a") {
			t.Errorf("requests %q", got)
		}
		if c, _ = w.within(0, "a"); c.FromDisk {
			t.Error("still marked as from the disk after an answer")
		}
		w.server.remove(mesh.TypeCluster, "a")
		pass(3 * time.Second)
		w.stop()
		w.build(withState)
		w.server.stop()
		w.run()
		if w.applied.get("a") != nil {
			t.Error("what was removed came back from the disk")
		}
	})
}

// warnings counts the Warn lines.
type warnings struct {
	n    int
	text strings.Builder
}

func (w *warnings) Write(p []byte) (int, error) {
	w.n += strings.Count(string(p), "[WARN]")
	return w.text.Write(p)
}

func TestUnusableState(t *testing.T) {
	good, err := encodeState(list(cds("a", "1", ""), eds("a", "1", "10.0.0.1")))
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, data := range map[string][]byte{
		"empty":         {},
		"foreign":       []byte("{\"a\": 1}\n"),
		"cut off":       good[:len(good)-3],
		"a flipped bit": flipped,
		"newer":         []byte(strings.Replace(string(good), stateMagic+" 1", stateMagic+" 2", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, stateName)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			seen := &warnings{}
			log := hclog.New(&hclog.LoggerOptions{Output: seen, Level: hclog.Warn})
			bubble(t, func(c *Config) { c.StateDir, c.Logger = dir, log }, func(w *world) {
				w.server.service("a", "1", "10.0.0.1")
				w.run()
				if w.applied.get("a") != nil {
					t.Error("applied")
				}
				w.must("a", "10.0.0.1")
			})
			if seen.n != 1 {
				t.Errorf("%d warnings:\n%s", seen.n, seen.text.String())
			}
			if aside, err := os.ReadFile(path + ".corrupt"); err != nil || string(aside) != string(data) {
				t.Errorf("set aside: %v", err)
			}
			if _, err := readState(path); err != nil {
				t.Errorf("no good state written after it: %v", err)
			}
		})
	}
}

func TestImpossibleStateDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := New(Config{NodeID: "n", Servers: []string{"one"}, Applier: newApplied(), StateDir: dir})
		if want := "state directory " + dir + ": not a directory"; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	// A disk may have room again; a path does not mend by itself.
	for err, want := range map[error]bool{
		syscall.ENOTDIR: true, syscall.EACCES: true, syscall.EPERM: true, syscall.EROFS: true,
		syscall.ENOSPC: false, syscall.EDQUOT: false, syscall.EIO: false, syscall.EMFILE: false,
	} {
		if got := impossible(&os.PathError{Op: "mkdir", Path: "/x", Err: err}); got != want {
			t.Errorf("%v: impossible %v", err, got)
		}
	}
}

func TestStateThatCannotBeSavedHarmsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	seen := &warnings{}
	log := hclog.New(&hclog.LoggerOptions{Output: seen, Level: hclog.Warn})
	registry := prometheus.NewRegistry()
	bubble(t, func(c *Config) { c.StateDir, c.Logger, c.Registerer = dir, log, registry }, func(w *world) {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		pass(time.Minute)
		w.server.service("a", "2", "10.0.0.2")
		pass(time.Second)
		w.must("a", "10.0.0.2")
		if n := metric(t, registry, "freshmesh_discovery_state_failures_total"); n < 3 {
			t.Errorf("%v failures counted", n)
		}
		if age := metric(t, registry, "freshmesh_discovery_age_seconds"); age < 0.9 || age > 20 {
			t.Errorf("age %v", age)
		}
	})
	// One for the file that cannot be read, one for all that cannot be written.
	if seen.n != 2 {
		t.Errorf("%d warnings:\n%s", seen.n, seen.text.String())
	}
}

// metric is the value of the first series of a name.
func metric(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestIdleClustersComeBackWhenUsed(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.server.service("listened", "1", "10.0.0.2")
		w.Subscribe("listened")
		w.run()
		w.must("a", "10.0.0.1")
		pass(59 * time.Minute)
		w.must("a", "10.0.0.1")
		pass(59 * time.Minute)
		w.must("a", "10.0.0.1")
		pass(62 * time.Minute)
		if got := w.applied.names(); !slices.Equal(got, []string{"listened"}) {
			t.Errorf("in force: %v", got)
		}
		w.must("a", "10.0.0.1")
	})
}

func TestLimitOfClusters(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxClusters = 1 }, func(w *world) {
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		if _, err := w.within(time.Second, "b"); !errors.Is(err, ErrDiscoveryLimit) {
			t.Errorf("error %v", err)
		}
		w.must("a", "10.0.0.1")
	})
}

// Names that nobody has come from whoever sends requests: they must neither pile
// up nor push out what exists.
func TestLimitOfUnknownNames(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxUnknown = 10 }, func(w *world) {
		for i := range 50 {
			w.server.service("real"+strconv.Itoa(i), "1", "10.0.0.1")
		}
		w.Subscribe("listened")
		w.run()
		for i := range 50 {
			w.must("real"+strconv.Itoa(i), "10.0.0.1")
		}
		limited := 0
		for i := range 300 {
			switch _, err := w.within(time.Second, "wrong"+strconv.Itoa(i)); {
			case errors.Is(err, ErrDiscoveryLimit):
				limited++
			case !errors.Is(err, ErrUnknownService):
				t.Errorf("error %v", err)
			}
		}
		if n := len(w.Status().Clusters); n != 61 || limited != 290 {
			t.Errorf("%d subscriptions, %d names refused; want 61 and 290", n, limited)
		}
		// What was asked before is answered as before, and in a few seconds there is room.
		for i := range 50 {
			w.must("real"+strconv.Itoa(i), "10.0.0.1")
		}
		if _, err := w.within(time.Second, "wrong0"); !errors.Is(err, ErrUnknownService) {
			t.Errorf("error %v", err)
		}
		pass(6 * time.Second)
		w.server.service("new", "1", "10.0.0.2")
		w.must("new", "10.0.0.2")
		if n := len(w.Status().Clusters); n != 52 {
			t.Errorf("%d subscriptions, want 52", n)
		}
	})
}

// Nobody answers: names that are asked once go after a minute all the same.
func TestUnknownNamesGoDuringAnOutage(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxUnknown = 10 }, func(w *world) {
		w.server.stop()
		w.run()
		for i := range 20 {
			_, err := w.within(time.Second, strconv.Itoa(i))
			if got, want := errors.Is(err, ErrDiscoveryLimit), i >= 10; got != want {
				t.Errorf("%d: %v", i, err)
			}
		}
		pass(2 * time.Minute)
		if n := len(w.Status().Clusters); n != 0 {
			t.Errorf("%d subscriptions", n)
		}
	})
}
