package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

var (
	length = flag.Duration("chaos", 30*time.Second, "how long the run takes, without its calm moments")
	seed   = flag.Uint64("seed", 1, "of faults and churn; 0 takes the clock's")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// round is how long there is chaos between two calm moments, at least; a long run has mostRounds.
const round, mostRounds = 10 * time.Second, 30

// Every failed request carries a reason that the faults explain, and nothing is left behind.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	t.Logf("seed %d (the order of goroutines and what clients draw is not part of it)", *seed)
	r := rand.New(rand.NewPCG(*seed, 1)) //nolint:gosec // to be repeated
	w := newWorld(t)
	sum := &tally{reasons: map[string]int{}}
	var calm []holdings
	rounds := min(max(3, int(*length/round)), mostRounds)
	for n := range rounds {
		w.storm(r, *length/time.Duration(rounds))
		calm = append(calm, w.settle())
		w.verdict(sum)
		calm[n].heap = restingHeap(calm[1:])
		t.Logf("round %d of %d: %d requests, %d failed; calm: %d goroutines, %d descriptors, heap %d KiB",
			n+1, rounds, sum.requests, sum.failed, calm[n].goroutines, calm[n].descriptors, calm[n].heap>>10)
		if t.Failed() {
			break
		}
	}
	sum.report(t)
	flat(t, calm)
}

// client mix: kind, service, how many, and how many at a time on each connection.
var mix = []struct {
	kind     kind
	service  string
	clients  int
	streams  int
	deadline time.Duration
}{
	{plain, "web", 6, 1, 0},
	{plain2, "web", 2, 3, 0},
	{websocket, "web", 3, 1, 0},
	{unary, "rpc", 3, 3, 2 * time.Second},
	{streaming, "rpc", 2, 2, 0},
	{plain, "rpc", 2, 1, 0},
	{tcp, "raw", 4, 1, 0},
	{unary, "tight", 3, 4, 0},
	{plain, "", 1, 1, 0},
}

// storm is a time of chaos: load, faults, churn, restarts.
func (w *world) storm(r *rand.Rand, d time.Duration) {
	for name, s := range w.services {
		w.change(name, true, s.peers)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		source := rand.New(rand.NewPCG(r.Uint64(), 2))        //nolint:gosec // to be repeated
		wg.Go(func() { w.disturb(ctx.Done(), source, name) }) //nolint:contextcheck // it ends what it does by itself
	}
	churn, restarts := rand.New(rand.NewPCG(r.Uint64(), 3)), rand.New(rand.NewPCG(r.Uint64(), 4)) //nolint:gosec // to be repeated
	wg.Go(func() { w.churn(ctx.Done(), churn) })                                                  //nolint:contextcheck // it ends what it does by itself
	wg.Go(func() { w.restarts(ctx.Done(), restarts) })                                            //nolint:contextcheck // it ends what it does by itself
	for range 2 {
		source := rand.New(rand.NewPCG(r.Uint64(), 5)) //nolint:gosec // to be repeated
		wg.Go(func() { w.abuse(ctx.Done(), source) })  //nolint:contextcheck // it ends what it does by itself
	}
	// The answers that clients still wait for when it is over need the clock too.
	watching, done := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { w.watch(watching.Done()) })
	defer watch.Wait()
	defer done()
	for _, m := range mix {
		for range m.clients {
			c := &client{world: w, kind: m.kind, service: m.service, deadline: m.deadline}
			wg.Go(func() { c.run(ctx, m.streams) })
		}
	}
	wg.Wait()
}

// run sends until ctx ends, and then waits for its answers.
func (c *client) run(ctx context.Context, streams int) {
	defer c.close()
	if streams == 1 {
		for ctx.Err() == nil {
			c.one(ctx)
		}
		return
	}
	// One connection for each burst, which carries all of it.
	for ctx.Err() == nil {
		if !c.connect(ctx) {
			return
		}
		var wg sync.WaitGroup
		for range streams {
			one := &client{world: c.world, kind: c.kind, service: c.service, deadline: c.deadline, cc: c.cc, shared: true}
			wg.Go(func() {
				defer one.close()
				for range 5 {
					one.one(ctx)
				}
			})
		}
		wg.Wait()
		if rand.IntN(4) == 0 {
			c.close()
		}
	}
}

func (c *client) one(ctx context.Context) {
	name := c.service
	if name == "" {
		// A service that never was.
		c.service = fmt.Sprintf("nobody-%d", c.ids.Load())
	}
	c.requests.add(c.send(ctx))
	c.service = name
	pause := 60 + rand.IntN(250)
	if name == "" {
		pause *= 20
	}
	wait(ctx.Done(), time.Duration(pause)*time.Millisecond)
}

// settle ends faults, takes the endpoints away, and measures what is left.
func (w *world) settle() holdings {
	for _, peers := range w.peers {
		for _, p := range peers {
			p.heal()
		}
	}
	w.until(15*time.Second, "every place with an endpoint, and with the breakers, is given back", w.idle)
	for name := range w.peers {
		w.change(name, true, nil)
	}
	w.until(15*time.Second, "connections to endpoints that left are closed", func() bool { return w.sockets() == 0 })
	var h holdings
	same := 0
	// What ends takes its time; what is leaked stays.
	w.until(30*time.Second, "the number of goroutines comes to rest", func() bool {
		now := holdings{goroutines: runtime.NumGoroutine(), descriptors: descriptors(w.t)}
		if same++; now != h {
			h, same = now, 0
		}
		wait(nil, 50*time.Millisecond)
		return same >= 10
	})
	return h
}

// idle tells whether the proxy counts no request as under way or waiting.
func (w *world) idle() bool {
	counts := 0
	for line := range strings.Lines(meshtest.Get(w.t, w.proxy.Admin, "/clusters")) {
		for _, count := range []string{"::rq_active::", "::rq_pending_active::", "::rq_retry_active::"} {
			_, n, ok := strings.Cut(line, count)
			if ok && n != "0\n" {
				return false
			}
			if ok {
				counts++
			}
		}
	}
	return counts > 0
}

// restingHeap is what is reachable when timers of the last round have let go,
// by the measure of the earlier calm moments.
func restingHeap(calm []holdings) (h uint64) {
	for end := time.Now().Add(15 * time.Second); ; wait(nil, 200*time.Millisecond) {
		if h = heap(); len(calm) < 2 || h <= tolerable(calm[0].heap) || time.Now().After(end) {
			return h
		}
	}
}

// tolerable is what a heap may have grown to from base.
func tolerable(base uint64) uint64 { return base + base/4 + 4<<20 }

// heap is what is reachable now.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// verdict judges all requests of a round, and forgets them.
func (w *world) verdict(sum *tally) {
	all := w.requests.copy()
	w.log.each(func(l *logged) {
		for _, a := range l.Attempts {
			if a.Reason == upstream.ConnectTimeout {
				w.add(a.Endpoint, timedOut, &span{l.Time, l.Time.Add(time.Duration(l.Seconds * float64(time.Second)))})
			}
		}
	})
	// Last come those that may have no line: their clients left before the proxy had heard of them.
	impatient := func(s *sent) bool { return !s.begun && w.done("", s.id, left) }
	slices.SortStableFunc(all, func(a, b *sent) int {
		switch first, second := impatient(a), impatient(b); {
		case first == second:
			return 0
		case second:
			return -1
		}
		return 1
	})
	for _, s := range all {
		l := w.log.take(s.key)
		if l == nil && !impatient(s) {
			w.until(10*time.Second, "a line in the access log", func() bool { l = w.log.take(s.key); return l != nil })
		}
		if l == nil {
			if !impatient(s) {
				w.t.Errorf("%v\nhas no line in the access log", s)
			}
			continue
		}
		sum.count(s, l)
		if why := judge(s, l, w.facts); why != "" {
			about := append([]string{controlPlane, machine}, w.service(s.service).peers...)
			w.t.Errorf("%s\n  %v\n  log %+v\n  deeds %v\n  states%s", why, s, *l, w.deeds[s.id], w.around(s.from.Add(-5*time.Second), s.to, about...))
			continue
		}
		sum.doubt(s, l, w.facts)
	}
	for _, l := range w.log.rest() {
		w.t.Errorf("belongs to no request: log %+v", *l)
	}
	w.requests.forget()
	before := time.Now().Add(-2 * failing)
	w.forget(before)
	w.history.forget(before)
}

// tally counts over all rounds.
type tally struct {
	requests, failed int
	// reasons: kind and reason → how many.
	reasons map[string]int
	// lies are changed reasons, caught those that the judge objected to.
	lies, caught int
}

func (t *tally) count(s *sent, l *logged) {
	t.requests++
	if !s.ok {
		t.failed++
		t.reasons[fmt.Sprintf("%-12s %s", s.kind, l.Reason)]++
	}
}

// doubt changes the reason of a failure at random, on the wire and in the log, and asks the judge again.
func (t *tally) doubt(s *sent, l *logged, f facts) {
	if l.Reason == upstream.None {
		return
	}
	all := upstream.Reasons()
	lie := all[rand.IntN(len(all))]
	if lie == l.Reason {
		return
	}
	liar, line := *s, *l
	line.Reason = lie
	line.Attempts = slices.Clone(l.Attempts)
	for i := range line.Attempts {
		if line.Attempts[i].Reason == l.Reason {
			line.Attempts[i].Reason = lie
		}
	}
	if s.proxyStatus != "" {
		liar.proxyStatus = fmt.Sprintf("freshmesh; layer=%s; reason=%s", lie.Layer(), lie)
		liar.line = fmt.Sprintf("freshmesh: %s: %s", lie.Layer(), lie)
	}
	t.lies++
	if judge(&liar, &line, f) != "" {
		t.caught++
	}
}

func (t *tally) report(tb testing.TB) {
	tb.Helper()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(t.reasons)) {
		fmt.Fprintf(&b, "\n  %-40s %d", k, t.reasons[k])
	}
	tb.Logf("%d requests, %d failed:%s", t.requests, t.failed, b.String())
	tb.Logf("%d of %d wrong reasons were found out", t.caught, t.lies)
	if t.lies == 0 || t.caught*100 < t.lies*80 {
		tb.Errorf("the judge found out only %d of %d wrong reasons", t.caught, t.lies)
	}
}

// flat wants no growth from the second calm moment on: the first one comes
// before all that is made once.
func flat(t *testing.T, calm []holdings) {
	t.Helper()
	if len(calm) < 3 {
		return
	}
	base := calm[1]
	for n, h := range calm[2:] {
		if h.goroutines > base.goroutines+slack {
			t.Errorf("round %d: %d goroutines, %d after the second one:", n+3, h.goroutines, base.goroutines)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
		if h.descriptors > base.descriptors+slack {
			t.Errorf("round %d: %d descriptors, %d after the second one", n+3, h.descriptors, base.descriptors)
		}
		if h.heap > tolerable(base.heap) {
			t.Errorf("round %d: a heap of %d KiB, %d after the second one", n+3, h.heap>>10, base.heap>>10)
		}
	}
}

// slack is what may differ by what just happens to be under way: a stream of
// the control plane, a timer's goroutine.
const slack = 4

// descriptors is how many the process has open, without pipes: those are kept
// for splicing by the standard library, and go with the garbage.
func descriptors(t *testing.T) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// What is gone by now was that of reading the directory.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}
