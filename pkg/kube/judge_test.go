package kube

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestJudge(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name       string
		goal       string
		live, mark string
		failures   uint64
		after      time.Duration
		want       verdict
	}{
		{"nothing happened", "100", "100", "100", 0, 0, proven},
		{"the watch has passed the last live version", "100", "120", "110", 0, 0, proven},
		{"it has reached it", "100", "120", "100", 0, 0, proven},
		{"it has not", "100", "120", "99", 0, 0, unproven},
		{"the first time there is no goal", "", "120", "99", 0, 0, proven},
		{"the server went back", "100", "90", "100", 0, 0, wentBack},
		{"by one digit", "100", "99", "100", 0, 0, wentBack},
		{"the feed failed since", "100", "120", "110", 1, 0, unproven},
		{"and has the newest version all the same", "100", "120", "120", 1, 0, unproven},
		{"everything is due", "100", "120", "110", 0, 10 * time.Minute, unproven},
		{"versions that are no numbers", "100", "abc", "110", 0, 0, blind},
		{"no listing yet", "", "120", "", 0, 0, blind},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := check{goal: tt.goal, wholeAt: start}
			if got := c.judge(tt.live, tt.mark, tt.failures, start.Add(tt.after), 10*time.Minute); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDiffers(t *testing.T) {
	a, b := mesh.Key{Kind: mesh.KindService, Name: "a"}, mesh.Key{Kind: mesh.KindService, Name: "b"}
	type forms = map[mesh.Key]form
	for _, tt := range []struct {
		name       string
		held, live forms
		// removed was deleted while the listing was made.
		removed mesh.Key
		want    relistReason
	}{
		{name: "equal", held: forms{a: {"u", "5"}}, live: forms{a: {"u", "5"}}},
		{name: "changed after the listing", held: forms{a: {"u", "11"}}, live: forms{a: {"u", "5"}}},
		{name: "created after it", held: forms{a: {"u", "5"}, b: {"v", "11"}}, live: forms{a: {"u", "5"}}},
		{name: "deleted after it", held: forms{}, live: forms{a: {"u", "5"}}, removed: a},
		{name: "replaced after it", held: forms{a: {"w", "11"}}, live: forms{a: {"u", "5"}}},
		{name: "a change was missed", held: forms{a: {"u", "5"}}, live: forms{a: {"u", "6"}}, want: deaf},
		{name: "a creation was missed", held: forms{}, live: forms{a: {"u", "5"}}, want: deaf},
		{name: "a deletion was missed", held: forms{a: {"u", "5"}}, live: forms{}, want: deaf},
		{name: "a replacement was missed", held: forms{a: {"u", "5"}}, live: forms{a: {"w", "7"}}, want: deaf},
		{name: "what is held is newer than the truth", held: forms{a: {"u", "6"}}, live: forms{a: {"u", "5"}}, want: rewound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHeld()
			h.objects = tt.held
			h.track()
			if tt.removed != (mesh.Key{}) {
				h.remove(tt.removed)
			}
			if got := h.differs(tt.live, "10").reason; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A watch that never ends and never speaks, although all is well, does not have
// its kind listed again and again.
func TestFruitlessRelistsGetRare(t *testing.T) {
	now, n := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	var r restarts
	for range 3 * 240 { // three hours, every 15 s
		_, cancel := r.begin(t.Context())
		if end := r.ask(silent, now); end != nil {
			n++
			end()
			r.listed(false, now, 30*time.Second)
		}
		cancel()
		now = now.Add(15 * time.Second)
	}
	if n > 20 {
		t.Errorf("%d relists in three hours", n)
	}
	_, cancel := r.begin(t.Context())
	defer cancel()
	if r.ask(deaf, now) == nil {
		t.Error("a proven fault must not wait")
	}
}

// A listing that is there in the very moment in which it is asked for ends the
// doubt: otherwise nothing would, until the next one.
func TestListedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSource(t, "http://127.0.0.1:1")
	f := s.feeds[mesh.KindService]
	f.health.delivered(f.kind)
	_, cancel := f.restarts.begin(t.Context())
	f.restarts.cancel = func() {
		cancel()
		f.restarts.listed(true, time.Now(), time.Second)
		f.health.delivered(f.kind)
	}
	f.relist(rewound, "the server went back")
	if got := feedOf(s.Status(), "services"); got.Reason != "" || got.Relists != 1 || !f.health.checkable(f.kind) {
		t.Errorf("in doubt for ever: %+v", got)
	}
}
