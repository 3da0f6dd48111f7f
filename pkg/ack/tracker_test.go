package ack_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what a node should hold: name → version, for every type.
type world map[string]mesh.Version

func (w world) Generation() mesh.Generation { return 1 }

func (w world) Version(_ mesh.Type, n mesh.Name) mesh.Version { return w[n.Value()] }

func (w world) Sum(_ mesh.Type, n mesh.Name) uint64 { return mesh.Sum(n, w[n.Value()]) }

func (w world) Total(mesh.Type) (int, uint64) {
	var sum uint64
	for name, v := range w {
		sum ^= mesh.Sum(mesh.Intern(name), v)
	}
	return len(w), sum
}

func (w world) Cause(mesh.Type, mesh.Name) (time.Time, mesh.Cause, bool) {
	return time.Time{}, mesh.Cause{}, false
}

var epoch = time.Unix(0, 0)

// TestTranscripts drives a Stream by hand. The commands, one type "eds" unless
// TYPE is given with type=TYPE:
//
//	new [delta] · wildcard on|off · add NAME… · remove NAME… · ask NAME… [held=V]
//	set NAME=V…      what is current, without telling the tracker
//	changed NAME=V…  what is current, and the tracker is told ("" for gone: NAME=-)
//	passed N NAME…   N versions came and went before that
//	drop NAME… · lose NAME… · hurry [heard] · distrust · send N NAME…|due · ack N · nack N [MESSAGE] · wait DURATION
//	due · state
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		d := &driver{}
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(td.Input) {
				out.WriteString(d.do(t, strings.Fields(line)))
			}
			return out.String()
		})
	})
}

type driver struct {
	s   *ack.Stream
	w   world
	now time.Time
}

func (d *driver) do(t *testing.T, words []string) string {
	t.Helper()
	typ := mesh.TypeEndpoint
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "type=") }); i >= 0 {
		typ, _ = mesh.ParseType(words[i][len("type="):])
		words = slices.Delete(words, i, i+1)
	}
	name, args := words[0], words[1:]
	if name == "new" {
		d.now, d.w = epoch, world{}
		d.s = ack.NewStream(ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second}, d.now)
		return ""
	}
	tr := d.s.Track(typ, 0)
	switch name {
	case "wildcard":
		tr.SetWildcard(args[0] == "on")
	case "add":
		each(args, func(n mesh.Name) { tr.Add(n) })
	case "remove":
		each(args, func(n mesh.Name) { tr.Remove(n); tr.Drop(n) })
	case "drop":
		each(args, tr.Drop)
	case "ask":
		held := mesh.Version("")
		if last := args[len(args)-1]; strings.HasPrefix(last, "held=") {
			held, args = mesh.Version(last[len("held="):]), args[:len(args)-1]
		}
		each(args, func(n mesh.Name) { tr.Ask(n, held, d.now) })
	case "set", "changed":
		for _, arg := range args {
			n, v, _ := strings.Cut(arg, "=")
			was := d.w[n]
			if d.w[n] = mesh.Version(v); v == "-" {
				delete(d.w, n)
			}
			if name == "changed" && tr.Wants(mesh.Intern(n)) {
				tr.Changed(mesh.Intern(n), ack.Change{Was: was, Now: d.w[n], At: d.now})
			}
		}
	case "passed":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			t.Fatal(err)
		}
		each(args[1:], func(name mesh.Name) { tr.Passed(name, n) })
	case "lose":
		each(args, func(n mesh.Name) { tr.Lose(n, d.w[n.Value()], d.now) })
	case "hurry":
		tr.Hurry(len(args) > 0)
	case "distrust":
		tr.Distrust()
	case "wait":
		w, err := time.ParseDuration(args[0])
		if err != nil {
			t.Fatal(err)
		}
		d.now = d.now.Add(w)
	case "due":
		return fmt.Sprintf("sendable %v: %s\n", tr.Sendable(), sortedText(tr.Due()))
	case "state":
		return d.state(typ)
	default:
		return d.message(t, tr, name, args)
	}
	return ""
}

// message sends or answers.
func (d *driver) message(t *testing.T, tr *ack.Tracker, name string, args []string) string {
	t.Helper()
	var nonce uint64
	if _, err := fmt.Sscan(args[0], &nonce); err != nil {
		t.Fatal(err)
	}
	ok := true
	switch args = args[1:]; name {
	case "send":
		names := args
		if slices.Equal(args, []string{"due"}) {
			names = strings.Fields(sortedText(tr.Due()))
		}
		var carried []ack.Carried
		each(names, func(n mesh.Name) { carried = append(carried, ack.Carried{Name: n, Version: d.w[n.Value()]}) })
		tr.Sent(nonce, d.now, carried)
	case "ack":
		ok = tr.Ack(nonce, d.now)
	case "nack":
		ok = tr.Nack(nonce, d.now, "v", strings.Join(args, " "))
	default:
		t.Fatalf("command %q is unknown", name)
	}
	if ok && name != "send" {
		d.s.ConfirmedAt = d.now
	}
	if !ok {
		return "not in flight\n"
	}
	return ""
}

func (d *driver) state(typ mesh.Type) string {
	st := d.s.State(typ, d.now, d.w)
	var b strings.Builder
	fmt.Fprintf(&b, "%s subscribed=%d behind=%d", st.State, st.Subscribed, st.Behind)
	if st.Reason != "" {
		fmt.Fprintf(&b, " (%s)", st.Reason)
	}
	for _, r := range d.s.Behind(typ, d.w) {
		fmt.Fprintf(&b, " %s:%s>%s", r.Name, orDash(r.Held), orDash(r.Current))
		if r.Versions > 1 {
			fmt.Fprintf(&b, "(%d)", r.Versions)
		}
	}
	if st.Nack != nil {
		fmt.Fprintf(&b, " nack:%q%v", st.Nack.Message, st.Nack.Resources)
	}
	if (st.HeldVersion == st.CurrentVersion) != (st.Behind == 0) {
		b.WriteString(" VERSIONS DISAGREE")
	}
	if overdue, ok := d.s.Overdue(d.now); ok {
		fmt.Fprintf(&b, " overdue:%s", overdue.Short())
	}
	return b.String() + "\n"
}

func orDash(v mesh.Version) string {
	if v == "" {
		return "-"
	}
	return string(v)
}

func each(names []string, f func(mesh.Name)) {
	for _, n := range names {
		f(mesh.Intern(n))
	}
}

func sortedText(names []mesh.Name) string {
	var out []string
	for _, n := range names {
		out = append(out, n.Value())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
