package refresh

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Refresher works with. Nodes, Services, Reader and
// Reconciler must be set.
type Config struct {
	Nodes      Nodes
	Services   Services
	Reader     Reader
	Reconciler Reconciler
	Limits     Limits
	// Logger may be nil: nothing is logged.
	Logger hclog.Logger
	// Registerer takes the metrics; may be nil. Registering twice with one panics.
	Registerer prometheus.Registerer
}

// Refresher turns reports into remedies.
type Refresher struct {
	cfg     Config
	log     hclog.Logger
	metrics *metrics
	inbox   inbox
	// results has room for every read that may be in flight, so that readers never wait for Run.
	results chan result

	core *core // owned by Run
}

type result struct {
	service mesh.Key
	outcome outcome
}

// New gives a Refresher. Reports may be submitted at once; they are looked at once Run runs.
func New(cfg Config) *Refresher {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Refresher{
		cfg:     cfg,
		log:     cfg.Logger.Named("refresh"),
		metrics: newMetrics(cfg.Registerer),
		inbox: inbox{
			limit: cfg.Limits.MaxPairs, nodeLimit: cfg.Limits.MaxPairsPerNode, endpointLimit: cfg.Limits.MaxEndpoints,
			wake: make(chan struct{}, 1), waiting: map[pair]Report{}, nodes: map[mesh.NodeID]int{},
		},
		results: make(chan result, cfg.Limits.MaxReading),
	}
}

// Submit takes a report; it never blocks. One without failures is ignored. May be called from any
// goroutine.
func (r *Refresher) Submit(report Report) {
	if !report.Failed() {
		return
	}
	if !r.inbox.put(report.trim()) {
		r.metrics.dropped.WithLabelValues(overflow).Inc()
	}
}

// Run looks at reports until ctx ends, waits for the live reads under way, and
// gives nil. It may be called once.
func (r *Refresher) Run(ctx context.Context) error {
	r.core = newCore(r.cfg.Limits, time.Now())
	var readers sync.WaitGroup
	defer readers.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.inbox.wake:
		case res := <-r.results:
			r.core.verified(time.Now(), res.service, res.outcome)
		case <-timer.C:
		}
		for _, service := range r.step() {
			readers.Go(func() { r.results <- result{service, r.read(ctx, service)} })
		}
		if wait, ok := r.core.next(time.Now()); ok {
			timer.Reset(wait)
		}
	}
}

// step gives the core all that waits for it, does what it decides, and returns
// the services that are to be read.
func (r *Refresher) step() []mesh.Key {
	now := time.Now()
	due, fresh := r.core.due(now), r.inbox.take()
	services := r.cfg.Services.ServicesOf(clustersOf(due, fresh))
	for _, d := range due {
		service, ok := services[d.report.Cluster]
		r.core.judgeAgain(now, d, r.cfg.Nodes.Holds(d.report.Node, d.report.Cluster), service, ok)
	}
	for _, report := range fresh {
		service, ok := services[report.Cluster]
		r.core.judge(now, report, r.cfg.Nodes.Holds(report.Node, report.Cluster), service, ok)
	}
	r.core.start(now)
	out := r.core.take()
	for _, p := range out.resend {
		r.cfg.Nodes.Resend(p.node, p.cluster)
	}
	r.metrics.count(out)
	for _, f := range out.findings {
		r.say(f)
	}
	return out.read
}

// clustersOf names what reports are about, each cluster once.
func clustersOf(due []delayed, fresh map[pair]Report) []string {
	names := make(map[string]bool)
	for _, d := range due {
		names[d.report.Cluster] = true
	}
	for p := range fresh {
		names[p.cluster] = true
	}
	return slices.Collect(maps.Keys(names))
}

// read reads the service live and has the store follow.
func (r *Refresher) read(ctx context.Context, service mesh.Key) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.ReadTimeout)
	defer cancel()
	live, err := r.cfg.Reader.Read(ctx, service)
	if err != nil {
		return outcome{err: err}
	}
	changed, err := r.cfg.Reconciler.Reconcile(ctx, service, live)
	return outcome{changed: changed, err: err}
}

// say logs a verdict: at Info when it is news, else at Debug. What is about no
// service stays at Trace: clients may invent clusters without end.
func (r *Refresher) say(f finding) {
	level := hclog.Debug
	switch {
	case f.reason == notAService:
		level = hclog.Trace
	case f.news:
		level = hclog.Info
	}
	if r.log.GetLevel() > level {
		return
	}
	facts := []any{
		"node", f.Node, "cluster", f.Cluster, "verdict", f.verdict,
		"endpoints", addresses(f.Endpoints), "connect_failures", f.connectFailures(),
	}
	if f.reason != "" {
		facts = append(facts, "reason", f.reason)
	}
	r.log.Log(level, "failures reported", facts...)
}

// addresses gives the endpoints as one text for the log, the first few by name.
func addresses(failures []EndpointFailure) string {
	const named = 8
	var b strings.Builder
	for i, f := range failures {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == named {
			b.WriteString("…")
			break
		}
		if f.Address.IsValid() {
			b.WriteString(f.Address.String())
		} else {
			b.WriteString("unknown")
		}
	}
	return b.String()
}

// inbox is where Submit leaves reports and Run finds them.
type inbox struct {
	limit, nodeLimit, endpointLimit int           // set once
	wake                            chan struct{} // set once; capacity 1

	mu sync.Mutex // guards what follows
	// endpoints is how many the reports name, at most endpointLimit.
	endpoints int
	// waiting holds at most limit pairs.
	waiting map[pair]Report
	// nodes counts them by node, at most nodeLimit each.
	nodes map[mesh.NodeID]int
}

// put adds a report to what waits; false when there is no room.
func (b *inbox) put(r Report) bool {
	if !b.keep(r) {
		return false
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

func (b *inbox) keep(r Report) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endpoints+len(r.Endpoints) > b.endpointLimit {
		r = r.folded()
	}
	old, ok := b.waiting[r.pair()]
	switch {
	case ok:
		r = old.add(r)
	case len(b.waiting) >= b.limit || b.nodes[r.Node] >= b.nodeLimit:
		return false
	default:
		b.nodes[r.Node]++
	}
	b.endpoints += len(r.Endpoints) - len(old.Endpoints)
	b.waiting[r.pair()] = r
	return true
}

// take gives all that waits.
func (b *inbox) take() map[pair]Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return nil
	}
	all := b.waiting
	b.waiting, b.nodes, b.endpoints = map[pair]Report{}, map[mesh.NodeID]int{}, 0
	return all
}
