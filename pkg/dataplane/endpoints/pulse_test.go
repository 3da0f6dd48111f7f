package endpoints

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestPulse(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		beats         []int
		from, to, sum int
	}{
		"no sign of life ever":       {nil, 0, 9000, 0},
		"a steady pulse":             {[]int{0, 250, 500, 750}, 0, 900, 0},
		"late, and no pause":         {[]int{0, 900}, 0, 1000, 0},
		"a pause that is over":       {[]int{0, 8000, 8250}, 0, 8300, 8000},
		"a request from amid it":     {[]int{0, 8000}, 3000, 8300, 5000},
		"one that began later":       {[]int{0, 8000}, 8100, 8300, 0},
		"one that ended before":      {[]int{0, 250, 8000}, 0, 200, 0},
		"the first to run after it":  {[]int{0}, 0, 8000, 8000},
		"the first to run, sent mid": {[]int{0, 250}, 100, 8000, 7750},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p Pulse
			for _, ms := range c.beats {
				p.beat(at(ms))
			}
			if got, want := p.Paused(at(c.from), at(c.to)), time.Duration(c.sum)*time.Millisecond; got != want {
				t.Errorf("paused for %v, want %v", got, want)
			}
		})
	}
}

// still is an upstream that nobody dials.
type still struct{ upstream.Upstream }

func (still) Probe(context.Context) error { return nil }
func (still) Close()                      {}
func (still) Retire(time.Duration)        {}

// What happened while the process did not run is not the endpoint's doing.
func TestSleepIsNoLatency(t *testing.T) {
	t.Parallel()
	key := mesh.EndpointKey{Address: netip.MustParseAddrPort("10.0.0.1:80")}
	for name, end := range map[string]func(*Lease){
		"answered":             func(l *Lease) { l.Connected(); sleep(); l.Answered(true); l.End(true) },
		"given up":             func(l *Lease) { l.Connected(); sleep(); l.End(false) },
		"timed out":            func(l *Lease) { l.Connected(); sleep(); l.TimedOut(); l.End(false) },
		"connected, opaque":    func(l *Lease) { sleep(); l.Connected(); l.Dialed(); l.End(true) },
		"connect timeout over": func(l *Lease) { sleep(); l.DialFailed(upstream.ConnectTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p Pulse
				set := New(Config{Pulse: &p, Reporter: deaf{}, NewUpstream: func(upstream.Config) upstream.Upstream { return still{} }})
				defer set.Close()
				if err := set.Apply(&discovery.Cluster{Name: "c", Endpoints: []mesh.Endpoint{{EndpointKey: key, Health: mesh.Healthy, Weight: 1}}}); err != nil {
					t.Fatal(err)
				}
				p.beat(time.Now())
				l, err := set.Cluster("c").Acquire(t.Context(), Request{})
				if err != nil {
					t.Fatal(err)
				}
				end(l)
				for _, s := range set.Status()[0].Endpoints {
					if s.EWMA > balance.Seed || s.Ejected {
						t.Errorf("estimate %v, ejected %t", s.EWMA, s.Ejected)
					}
				}
			})
		})
	}
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Count(string, mesh.EndpointKey, discovery.Load) {}
func (deaf) Distrust(string)                                {}

func sleep() { time.Sleep(8 * time.Second) } // bubble time
