package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

const (
	hit   = "127.77.1.1:1"
	other = "127.77.1.2:1"
)

// scene is a failure with what explains it.
type scene struct {
	reason upstream.Reason
	// set brings the facts about; the request takes from now to now+took.
	set  func(facts, *service)
	took time.Duration
	// also are reasons which the same facts explain.
	also []upstream.Reason
	// cluster: no endpoint was tried.
	cluster bool
}

func did(acts ...act) func(facts, *service) {
	return func(f facts, _ *service) {
		for _, a := range acts {
			f.did(hit, "1", a)
		}
	}
}

func was(a act, endpoints ...string) func(facts, *service) {
	return func(f facts, _ *service) {
		for _, e := range endpoints {
			f.add(e, a, &span{from: time.Now().Add(-time.Second)})
		}
	}
}

// stalledBefore: the machine stood still from one time before the request to another.
func stalledBefore(from, to time.Duration) func(facts, *service) {
	return func(f facts, _ *service) {
		now := time.Now()
		f.add(machine, stalled, &span{from: now.Add(-from), to: now.Add(-to)})
	}
}

func published(exists bool, addresses ...string) func(facts, *service) {
	return func(f facts, _ *service) {
		f.history.versions["web"] = []*version{{span: span{from: time.Now().Add(-time.Minute)}, exists: exists, addresses: addresses}}
	}
}

func busy(n int) func(facts, *service) {
	return func(f facts, _ *service) {
		for range n {
			f.requests.add(&sent{service: "web", span: span{from: time.Now().Add(-time.Second)}})
		}
	}
}

func all(sets ...func(facts, *service)) func(facts, *service) {
	return func(f facts, s *service) {
		for _, set := range sets {
			set(f, s)
		}
	}
}

func limits(_ facts, s *service) { s.maxConnections, s.maxRequests, s.maxPending = 2, 4, 4 }

var scenes = []scene{
	// While it refuses, connections that were open are gone, and so are those that were about to be.
	{
		reason: upstream.ConnectRefused, set: was(refusing, hit),
		also: []upstream.Reason{upstream.ConnectFailed, upstream.ResetBeforeHeaders, upstream.StreamRefused},
	},
	{reason: upstream.ConnectTimeout, set: was(silent, hit)},
	// The dial which the request joined had begun before it, and so had the machine's stall, which was over by then.
	{reason: upstream.ConnectTimeout, set: stalledBefore(connecting/2, 3*time.Millisecond)},
	{reason: upstream.ConnectFailed, set: was(leaving, hit), also: []upstream.Reason{upstream.ResetBeforeHeaders}},
	{reason: upstream.ProtocolError, set: did(nonsense)},
	{reason: upstream.ProtocolError, set: was(garbled, hit)},
	{reason: upstream.ResetBeforeHeaders, set: did(dropped)},
	{reason: upstream.ResetBeforeHeaders, set: was(killed, hit), also: []upstream.Reason{upstream.ConnectFailed, upstream.StreamRefused}},
	{reason: upstream.ResetMidBody, set: did(began, cut)},
	{reason: upstream.StreamRefused, set: did(refused)},
	{reason: upstream.StreamRefused, set: was(goneAway, hit)},
	{reason: upstream.UpgradeFailed, set: did(switched)},
	{reason: upstream.TryTimeout, set: did(held), took: time.Second},
	{reason: upstream.Deadline, set: did(held), took: 2 * time.Second, also: []upstream.Reason{upstream.TryTimeout}},
	{
		reason: upstream.StreamLimit, set: all(limits, was(oneStream, hit), was(open, hit), was(open, other)),
		also: []upstream.Reason{upstream.BreakerConnections},
	},
	{reason: upstream.BreakerConnections, set: all(limits, was(open, hit), was(open, other)), cluster: true},
	{reason: upstream.BreakerRequests, set: all(limits, busy(5)), cluster: true},
	{
		reason: upstream.BreakerPending, set: all(limits, busy(5), was(refusing, hit, other)), cluster: true,
		also: []upstream.Reason{upstream.BreakerRequests, upstream.BreakerConnections, upstream.AllEjected, upstream.FailFast},
	},
	{reason: upstream.AllEjected, set: was(refusing, hit, other), cluster: true, also: []upstream.Reason{upstream.FailFast}},
	{reason: upstream.FailFast, set: was(silent, hit, other), cluster: true, also: []upstream.Reason{upstream.AllEjected}},
	{
		reason: upstream.DeadlineInQueue, set: was(refusing, hit, other), took: 2 * time.Second, cluster: true,
		also: []upstream.Reason{upstream.AllEjected, upstream.FailFast},
	},
	{reason: upstream.NoEndpoints, set: published(true), cluster: true},
	{reason: upstream.NoSuchService, set: published(false), cluster: true},
	{reason: upstream.DiscoveryPending, set: was(refusing, controlPlane), cluster: true},
	{reason: upstream.EndpointRemoved, set: published(true, other)},
	{reason: upstream.ClientGone, set: did(left), cluster: true},
}

// Each reason passes with the facts that explain it, and every other one is found out.
func TestJudgeFindsWrongReasons(t *testing.T) {
	seen := map[upstream.Reason]bool{}
	for _, c := range scenes {
		seen[c.reason] = true
		for _, said := range upstream.Reasons() {
			s, l, f := c.play(said)
			why, right := judge(s, l, f), said == c.reason || slices.Contains(c.also, said)
			if right != (why == "") {
				t.Errorf("%s said to be %s: %q", c.reason, said, why)
			}
		}
	}
	for reason := range causes {
		// It is any failure that could have been repeated, and is judged by that one.
		if !seen[reason] && reason != upstream.BreakerRetries {
			t.Errorf("no scene has %s", reason)
		}
	}
}

func (c *scene) play(said upstream.Reason) (*sent, *logged, facts) {
	web := &service{name: "web", protocol: http2c, peers: []string{hit, other}, timeout: 2 * time.Second, perTry: time.Second}
	f := facts{ledger: newLedger(), services: map[string]*service{"web": web}, history: &history{versions: map[string][]*version{}}, requests: &requests{}}
	published(true, hit, other)(f, web)
	c.set(f, web)
	s := &sent{
		id: "1", kind: plain2, service: "web", span: span{from: time.Now(), to: time.Now().Add(c.took)}, begun: true, ended: true,
		proxyStatus: fmt.Sprintf("freshmesh; layer=%s; reason=%s", said.Layer(), said), line: fmt.Sprintf("freshmesh: %s: %s", said.Layer(), said),
	}
	l := &logged{Reason: said}
	if !c.cluster {
		l.Attempts = []attempted{{Endpoint: hit, Reason: said}}
	}
	return s, l, f
}

// What the wire says must be what the log says, and there must be something where there can be.
func TestJudgeComparesWireAndLog(t *testing.T) {
	c := scene{reason: upstream.ResetBeforeHeaders, set: did(dropped)}
	for name, change := range map[string]func(*sent, *logged){
		"another reason in the log": func(_ *sent, l *logged) { l.Reason = upstream.ProtocolError },
		"none in the log":           func(_ *sent, l *logged) { l.Reason, l.Attempts = upstream.None, nil },
		"another layer":             func(s *sent, _ *logged) { s.proxyStatus = "freshmesh; layer=client; reason=reset_before_headers" },
		"another line":              func(s *sent, _ *logged) { s.line = "freshmesh: it broke" },
		"no Proxy-Status":           func(s *sent, _ *logged) { s.proxyStatus = "" },
		"nothing at all":            func(s *sent, _ *logged) { s.proxyStatus, s.begun, s.ended = "", false, false },
		"an answer after all":       func(s *sent, _ *logged) { s.proxyStatus, s.ok = "", true },
	} {
		s, l, f := c.play(c.reason)
		change(s, l)
		if judge(s, l, f) == "" {
			t.Errorf("%s is not found out", name)
		}
	}
	s, l, f := c.play(c.reason)
	s.proxyStatus, s.ended, l.Reason, l.Attempts = "", false, upstream.None, nil
	if judge(s, l, f) == "" {
		t.Error("broken off without a reason in the log, and not found out")
	}
}
