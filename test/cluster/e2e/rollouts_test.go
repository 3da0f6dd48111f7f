package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/test/cluster/app/report"
)

var (
	rollouts = flag.Int("rollouts", 0, "rollouts of TestRollouts; 0 means 3, or 1 with -short")
	table    = flag.String("table", "", "file for the tables of TestRollouts (make rollouts)")
)

// hooks are what the pods of a rollout may do before their end.
var hooks = []struct{ name, preStop string }{
	{"barrier (`/drain`)", ""},
	{"`sleep 15`", "{sleep: {seconds: 15}}"},
	{"nothing", noHook},
}

// row is what one way of rolling out cost.
type row struct {
	name                    string
	pods                    int
	took                    time.Duration
	sent, failed, byLibrary int
	waits                   []time.Duration
	ours, envoys            int // failed, of clients behind the one and the other
	slowest                 time.Duration
}

// TestRollouts replaces all pods of a service again and again, under clients that never
// retry, and loses nothing. With -table it also measures the barrier beside a sleep and
// beside nothing, with fifty pods.
func TestRollouts(t *testing.T) {
	m := mesh{place: newPlace(t, "rollouts"), echo: inMesh("echo", 10, rolling("25%", "25%"))}
	if *rollouts == 0 {
		*rollouts = size(1, 3)
	}
	if *table == "" {
		m.echo.Replicas = 4
	}
	if *table == "" {
		t.Parallel()
	}
	m.deploy(m.echo)
	m.clients = m.bothClients("echo")
	t.Run("Again", func(t *testing.T) {
		of := m.on(t)
		total := row{name: fmt.Sprintf("%d rollouts of %d pods, barrier", *rollouts, m.echo.Replicas), pods: m.echo.Replicas}
		for n := range *rollouts {
			m.echo.Version = fmt.Sprint("again-", n)
			one := of.rollout(m.echo)
			total.add(one)
			if one.failed > 0 {
				t.Errorf("rollout %d lost %d of %d requests", n, one.failed, one.sent)
			}
		}
		t.Log(total)
		if *table != "" {
			t.Run("Compared", func(t *testing.T) { m.on(t).compare(total) })
		}
	})
}

// rollout rolls a backend out, and gives what it cost the clients.
func (m *mesh) rollout(b backend) row {
	m.t.Helper()
	for _, c := range m.clients {
		c.reset()
	}
	began := time.Now()
	m.deploy(b)
	r := row{pods: b.Replicas, took: time.Since(began)}
	if b.PreStop == "" {
		r.waits = m.waits(began)
	}
	since := time.Now()
	for _, c := range m.clients {
		c.answeredBy(since, names(m.pods(b.Name))...)
		s := c.stats()
		r.count(c.pod.Name, s)
		for kind, k := range s.Kinds {
			for _, f := range k.Failures {
				m.t.Logf("%s %s %s: %s", c.pod.Name, kind, f.At.Format(time.TimeOnly), f.Text)
			}
		}
	}
	return r
}

func (r *row) count(client string, s report.Stats) {
	for _, k := range s.Kinds {
		r.sent, r.failed, r.byLibrary, r.slowest = r.sent+k.Sent, r.failed+k.Failed, r.byLibrary+k.Retried, max(r.slowest, k.Slowest)
		if client == "ours" {
			r.ours += k.Failed
		} else {
			r.envoys += k.Failed
		}
	}
}

func (r *row) add(o row) {
	r.took, r.sent, r.failed, r.byLibrary = r.took+o.took, r.sent+o.sent, r.failed+o.failed, r.byLibrary+o.byLibrary
	r.ours, r.envoys, r.slowest = r.ours+o.ours, r.envoys+o.envoys, max(r.slowest, o.slowest)
	r.waits = append(r.waits, o.waits...)
	slices.Sort(r.waits)
}

func (r row) String() string {
	waits := "-"
	if len(r.waits) > 0 {
		waits = spread(r.waits)
	}
	return fmt.Sprintf("| %s | %d | %v | %d | %d | %d | %d | %s | %v |", r.name, r.pods, r.took.Round(time.Second), r.sent, r.ours, r.envoys, r.byLibrary,
		waits, r.slowest.Round(time.Millisecond))
}

// compare measures one rollout of fifty pods with each hook, and writes the tables.
func (m *mesh) compare(again row) {
	rows := []row{again}
	b := m.echo
	b.Replicas = 50
	b.Version = "fifty"
	m.deploy(b)
	for i, h := range hooks {
		b.PreStop, b.Version = h.preStop, fmt.Sprint("armed-", i)
		m.deploy(b) // the hook is that of the pods that go
		b.Version = fmt.Sprint("measured-", i)
		r := m.rollout(b)
		r.name = "one rollout, " + h.name
		rows = append(rows, r)
		m.t.Log(r)
		if h.preStop == "" && r.failed > 0 {
			m.t.Errorf("the barrier lost %d of %d requests", r.failed, r.sent)
		}
	}
	var text strings.Builder
	fmt.Fprint(&text, rolloutsHead)
	for _, r := range rows {
		fmt.Fprintln(&text, r)
	}
	if err := os.WriteFile(*table, []byte(text.String()), 0o644); err != nil { //nolint:gosec // a document
		m.t.Error(err)
	}
}

const rolloutsHead = `# Rollouts

Written by ` + "`make rollouts`" + `, on a real Kubernetes control plane (test/cluster): two xds-servers, a Deployment whose pods have a data plane
as native sidecar, and 20 clients that never retry, half of them behind our data plane and half behind an Envoy: HTTP/1.1, gRPC, gRPC streams,
WebSocket and TCP, 20 requests a second each. Lost is what got no answer, or not the right one, in the whole rollout.

| rollout | pods | took | requests | lost, data plane | lost, Envoy | sent again by grpc-go | waits in preStop | slowest request |
|---|---|---|---|---|---|---|---|---|
`
