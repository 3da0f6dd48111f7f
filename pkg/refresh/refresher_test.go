package refresh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var _ Reader = mesh.Source(nil)

// world is a mesh as a Refresher sees it. Its fields are set before reports are submitted.
type world struct {
	readTakes time.Duration
	readErr   error
	changed   bool

	mu      sync.Mutex // guards what follows
	behind  map[mesh.NodeID]bool
	resends []pair
	reads   int
}

func (w *world) Holds(node mesh.NodeID, _ string) Holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Holding{Behind: w.behind[node]}
}

func (w *world) Resend(node mesh.NodeID, cluster string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resends = append(w.resends, pair{node, cluster})
}

func (w *world) ServicesOf(clusters []string) map[string]mesh.Key {
	services := map[string]mesh.Key{}
	for _, c := range clusters {
		services[c] = mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: c}
	}
	return services
}

func (w *world) Read(ctx context.Context, service mesh.Key) ([]mesh.Object, error) {
	w.mu.Lock()
	w.reads++
	w.mu.Unlock()
	timer := time.NewTimer(w.readTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", service, ctx.Err())
	}
	return []mesh.Object{&mesh.Service{Meta: mesh.Meta{Key: service}}}, w.readErr
}

func (w *world) Reconcile(_ context.Context, service mesh.Key, live []mesh.Object) (bool, error) {
	if len(live) != 1 || live[0].Metadata().Key != service {
		return false, errors.New("not what was read")
	}
	return w.changed, nil
}

// run gives a running Refresher and what it logs; it ends with the test.
func run(t *testing.T, w *world, l Limits) (*Refresher, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	r := New(Config{
		Nodes: w, Services: w, Reader: w, Reconciler: w, Limits: l,
		Logger:     hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info, DisableTime: true}),
		Registerer: prometheus.NewPedanticRegistry(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r, &log
}

func (r *Refresher) counted(v Verdict) int {
	return int(testutil.ToFloat64(r.metrics.verdicts.WithLabelValues(string(v))))
}

func TestStormCostsOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{readTakes: 50 * time.Millisecond}
		r, log := run(t, w, Limits{})
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { r.Submit(failure(mesh.NodeID(fmt.Sprintf("n%d", i)), dead)) })
		}
		wg.Wait()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // bubble time: the read's own
		synctest.Wait()
		if w.reads != 1 || r.counted(Current) != 1000 || len(w.resends) != 0 {
			t.Errorf("%d reads, %d verdicts, %d resends", w.reads, r.counted(Current), len(w.resends))
		}
		if n := strings.Count(log.String(), "\n"); n != 1000 {
			t.Errorf("%d lines", n)
		}
		if got := testutil.ToFloat64(r.metrics.reads); got != 1 {
			t.Errorf("reads counted: %v", got)
		}
	})
}

func TestLogIsOncePerVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		r, log := run(t, w, Limits{})
		for range 5 {
			r.Submit(failure("a", dead))
			synctest.Wait()
			time.Sleep(10 * time.Second) // bubble time: the next load report
		}
		want := `[INFO]  refresh: failures reported: node=a cluster=echo verdict=current endpoints=10.0.0.1:8080 connect_failures=3` + "\n"
		if log.String() != want {
			t.Errorf("got %q\nwant %q", log.String(), want)
		}
		if w.reads != 5 {
			t.Errorf("%d reads", w.reads)
		}
	})
}

func TestLyingClientIsHeldDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{behind: map[mesh.NodeID]bool{"liar": true}}
		r, _ := run(t, w, Limits{})
		for range 600 { // a minute of reports, ten a second, 50 clusters each
			for c := range 50 {
				r.Submit(Report{Node: "liar", Cluster: fmt.Sprint(c), FailConnects: 1})
			}
			time.Sleep(100 * time.Millisecond) // bubble time
		}
		synctest.Wait()
		if n := len(w.resends); n < 100 || n > 20+2*60 {
			t.Errorf("%d resends", n)
		}
		w.mu.Lock()
		w.resends = nil
		w.mu.Unlock()
		r.Submit(Report{Node: "honest", Cluster: "1", FailConnects: 1})
		synctest.Wait()
		if r.counted(Current) != 1 {
			t.Errorf("the honest node got %d verdicts", r.counted(Current))
		}
	})
}

func TestReadThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{readTakes: time.Hour}
		r, log := run(t, w, Limits{})
		r.Submit(failure("a", dead))
		time.Sleep(5*time.Second + time.Millisecond) // bubble time
		synctest.Wait()
		if r.counted(Unverified) != 1 || !strings.Contains(log.String(), "deadline exceeded") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestStoreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{changed: true}
		r, _ := run(t, w, Limits{})
		r.Submit(failure("a", dead))
		synctest.Wait()
		if r.counted(StoreBehind) != 1 || len(w.resends) != 0 {
			t.Errorf("%d verdicts, resends %v", r.counted(StoreBehind), w.resends)
		}
	})
}

func TestSubmitNeverBlocksAndCountsOverflow(t *testing.T) {
	w := &world{}
	r := New(Config{Nodes: w, Services: w, Reader: w, Reconciler: w, Limits: Limits{MaxPairs: 3}})
	r.Submit(Report{Node: "a", Cluster: "c", Endpoints: []EndpointFailure{{Address: dead, Issued: 5}}}) // nothing failed
	for i := range 10 {                                                                                 // nobody runs
		r.Submit(failure(mesh.NodeID(fmt.Sprint(i%5)), dead))
	}
	if got := testutil.ToFloat64(r.metrics.dropped.WithLabelValues("overflow")); got != 4 {
		t.Errorf("dropped %v", got)
	}
	waiting := r.inbox.take()
	if got := waiting[pair{"0", "echo"}].Endpoints; len(got) != 1 || got[0].ConnectFailed != 6 {
		t.Errorf("not added up: %v", got)
	}
	if _, ok := waiting[pair{"a", "c"}]; ok {
		t.Error("a report without failures waits")
	}
}
