package kube

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// health gathers what the requests tell about the server, and makes of it the
// source's status. All methods are safe for concurrent use, and none blocks.
type health struct {
	// set once
	server       string
	log          hclog.Logger
	refusedPause time.Duration

	mu sync.Mutex // guards all below
	// away says why the server as a whole does not serve us; "" when it does.
	away  string
	kinds map[mesh.Kind]*kindHealth
	// recollect asks for Problems to be put together anew.
	recollect bool
	status    mesh.SourceStatus
	// openedAt is when a required kind was last answered after it had been refused.
	openedAt time.Time
}

// kindHealth is what is known about the requests for one kind.
type kindHealth struct {
	resource
	// listed is true once a full listing has been delivered.
	listed bool
	// list and watch say why the last request of that sort failed; "" when it did not. watchedAt is when the last watch began.
	list, watch string
	watchedAt   time.Time
	// refused is true while the server answers that this kind is not for us.
	refused   bool
	refusedAt time.Time
	// check says why the last live read failed; "" when it did not.
	check        string
	checkRefused bool
	// doubt says why the kind is being listed anew; "" once that is delivered.
	doubt string
	// failures counts its failed list and watch requests, and the watches that were cut off.
	failures uint64
	// feed is what is shown of it: its CheckedAt, BehindSince and Relists are kept there.
	feed mesh.Feed
	held *held
	// problems are those of the kind's objects; changed through found.
	problems map[mesh.Key][]mesh.Problem
}

func (k *kindHealth) failure() string { return cmp.Or(k.list, k.watch, k.doubt, k.check) }

func newHealth(server string, log hclog.Logger, now time.Time) *health {
	h := &health{
		server: server, log: log, refusedPause: defaultRefusedPause,
		away: "no answer from " + server + " yet", kinds: make(map[mesh.Kind]*kindHealth),
	}
	for _, r := range resources {
		h.kinds[r.kind] = &kindHealth{
			resource: r, held: newHeld(), problems: make(map[mesh.Key][]mesh.Problem),
			feed: mesh.Feed{Name: r.plural, BehindSince: now},
		}
	}
	h.status = mesh.SourceStatus{Since: now, Reason: h.away}
	return h
}

// Status is the source's status now.
func (h *health) Status() mesh.SourceStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Feeds = make([]mesh.Feed, 0, len(resources))
	for _, r := range resources {
		s.Feeds = append(s.Feeds, h.kinds[r.kind].shown())
	}
	return s
}

// heardSince tells whether the server has answered anything since a time.
func (h *health) heardSince(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status.LastSeenAt.After(at)
}

// reached notes an answer that shows that the server serves us.
func (h *health) reached() {
	h.change(func(now time.Time) { h.serves(now) })
}

// failed notes that a request which was no feed's failed.
func (h *health) failed(err error, what string, began time.Time) {
	h.change(func(now time.Time) { h.blame(err, what, began, now) })
}

// heard notes an event or a bookmark of a watch, or that the watch began.
func (h *health) heard(kind mesh.Kind) {
	h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.watch = ""
		h.accept(k, now)
	})
}

// watching notes that a watch began.
func (h *health) watching(kind mesh.Kind) {
	h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.watch, k.watchedAt = "", now
		h.accept(k, now)
	})
}

// answered notes that a list request succeeded. Its objects may be still to be delivered.
func (h *health) answered(kind mesh.Kind) {
	h.change(func(now time.Time) {
		h.accept(h.kinds[kind], now)
	})
}

// delivered notes that a full listing is in the sink. It tells whether all is
// synced with that, for the first time.
func (h *health) delivered(kind mesh.Kind) (synced bool) {
	return h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.listed, k.doubt, k.feed.CheckedAt = true, "", now
	})
}

// requestFailed notes a kind's failed list or watch request. It tells whether
// all is synced with that, for the first time: a refused kind is not waited for.
func (h *health) requestFailed(kind mesh.Kind, err error, watch bool, began time.Time) (synced bool) {
	return h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.failures++
		if watch {
			k.watch = h.blame(err, "watch "+k.plural, began, now)
		} else {
			k.list = h.blame(err, "list "+k.plural, began, now)
		}
		if refused(err) && began.After(h.openedAt) {
			k.refused, k.refusedAt = true, now
		}
		h.recollect = h.recollect || k.refused
	})
}

// found replaces what is wrong with one object; nil for nothing.
func (h *health) found(kind mesh.Kind, key mesh.Key, problems []mesh.Problem) {
	h.change(func(time.Time) {
		h.recollect = true
		if len(problems) == 0 {
			delete(h.kinds[kind].problems, key)
		} else {
			h.kinds[kind].problems[key] = problems
		}
	})
}

// pause is how long to wait before asking again for a kind that may be refused
// for good.
func (h *health) pause(kind mesh.Kind) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.kinds[kind]
	if !k.refused || k.required || !h.status.Synced {
		return 0
	}
	return max(0, time.Until(k.refusedAt.Add(h.refusedPause)))
}

// serves notes that the server serves us; with mu.
func (h *health) serves(now time.Time) {
	h.away, h.status.LastSeenAt = "", now
}

// blame gives the reason of a request that began at a time and failed, and
// notes what it tells of the server; with mu. A server that answered others
// meanwhile is not away.
func (h *health) blame(err error, what string, began, now time.Time) string {
	reason, away := explain(err, what, h.server)
	if unanswered(err) && h.status.LastSeenAt.After(began) {
		return "no answer from " + h.server + " to " + what + " in time"
	}
	if away {
		h.away = reason
	} else {
		h.serves(now)
	}
	return reason
}

// accept notes that the server answered a request for the kind; with mu.
func (h *health) accept(k *kindHealth, now time.Time) {
	h.serves(now)
	if k.refused && k.required && (k.watch == "" || !h.status.Synced) {
		// A server that has just started refuses everything for a moment;
		// what it said then of the others counts no more, and what it was
		// asked then will not.
		h.openedAt = now
		for _, other := range h.kinds {
			other.refused = other.refused && other == k
		}
	}
	if k.refused && k.watch != "" {
		k.list = ""
		return // a refused watch is none the better for an answered list
	}
	if !k.refused && k.list == "" {
		return
	}
	k.list, k.refused = "", false
	h.recollect = true
}

// change makes one change and derives the status from it. It tells whether the
// source is synced with that, for the first time.
func (h *health) change(do func(now time.Time)) (synced bool) {
	old, next := h.changed(do)
	h.report(old, next)
	return next.Synced && !old.Synced
}

func (h *health) changed(do func(now time.Time)) (old, next mesh.SourceStatus) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	old = h.status
	do(now)
	s := &h.status
	for _, k := range h.kinds {
		k.keepTime(now)
	}
	s.Reason = h.disconnection()
	s.Connected = s.Reason == ""
	if !s.Synced {
		waiting := h.waiting()
		s.Synced = waiting == ""
		s.Reason = cmp.Or(s.Reason, waiting)
	}
	if s.Connected != old.Connected || s.Synced != old.Synced {
		s.Since = now
	}
	if h.recollect {
		h.recollect = false
		s.Problems = h.collect()
	}
	return old, *s
}

// disconnection says why the source is not connected; "" when it is; with mu.
func (h *health) disconnection() string {
	if h.away != "" {
		return h.away
	}
	for _, r := range resources {
		if k := h.kinds[r.kind]; k.required && k.failure() != "" {
			return k.failure()
		}
	}
	return ""
}

// waiting says which kinds the source waits for; "" when for none; with mu.
func (h *health) waiting() string {
	var names []string
	for _, r := range resources {
		k := h.kinds[r.kind]
		if !k.listed && (k.required || !k.refused) {
			name := k.plural
			if k.failure() != "" {
				name += " (" + k.failure() + ")"
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "waiting for the first list of " + strings.Join(names, ", ")
}

// collect gives all problems, sorted; the slice of before when they are the same; with mu.
func (h *health) collect() []mesh.Problem {
	var all []mesh.Problem
	for _, k := range h.kinds {
		if (k.refused || k.checkRefused) && !k.required {
			all = append(all, mesh.Problem{Object: string(k.kind) + " *", Reason: k.failure()})
		}
		for _, problems := range k.problems {
			all = append(all, problems...)
		}
	}
	slices.SortFunc(all, mesh.Problem.Compare)
	if slices.Equal(all, h.status.Problems) {
		return h.status.Problems
	}
	return all
}

// report logs a change of state, and each problem that is new.
func (h *health) report(old, next mesh.SourceStatus) {
	switch {
	case next.Synced && !old.Synced:
		h.log.Info("cluster synced", "server", h.server)
	case next.Connected && !old.Connected:
		h.log.Info("cluster reached", "server", h.server)
	case !next.Connected && (old.Connected || old.Reason != next.Reason):
		h.log.Warn("cluster away, what is known stays", "server", h.server, "reason", next.Reason)
	}
	for _, p := range next.Problems {
		if _, known := slices.BinarySearchFunc(old.Problems, p, mesh.Problem.Compare); !known {
			h.log.Warn("problem in the cluster", "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
	}
}
