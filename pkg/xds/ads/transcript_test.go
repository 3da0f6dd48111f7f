package ads_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// FuzzTranscript plays what real clients requested, with changes as the bytes
// say, and holds the core against the model in model_test.go.
//
// testdata/transcripts has a file for each stream that was recorded of Envoy and
// the gRPC clients (`go test ./test/interop -run TestTranscripts -record`). Its first line is
// the protocol variant; then come, by the order in which the server saw them:
//
//	put TYPE NAME, remove TYPE NAME    the store changes; several in a row are one change
//	ask TYPE …                         a request without a nonce
//	again TYPE …                       one with the nonce of the newest response, which was answered before
//	ack TYPE …, nack TYPE …            the answer to the oldest response that is not answered
//	pass DURATION                      nothing happens
//	reconnect                          the next stream
//
// with names=A,B in state-of-the-world, and subscribe, unsubscribe, initial in delta.
func FuzzTranscript(f *testing.F) {
	all := readTranscripts(f)
	for i := range all {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte("\x01\x00\x00\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01"))
	}
	f.Fuzz(func(t *testing.T, i uint8, data []byte) { replay(t, all[int(i)%len(all)], data) })
}

// As they were recorded, all of them end with a client that holds everything.
func TestTranscripts(t *testing.T) {
	for _, tr := range readTranscripts(t) {
		t.Run(tr.name, func(t *testing.T) { replay(t, tr, nil) })
	}
}

// transcript is one file.
type transcript struct {
	name  string
	delta bool
	lines []event
}

// event is a line.
type event struct {
	verb string
	kind mesh.Type
	// name is that of the resource that is put or removed.
	name string
	pass time.Duration
	// lists: key → names.
	lists map[string][]string
	// more are puts and removals in the same update.
	more []event
}

func (e event) changes() bool { return e.verb == "put" || e.verb == "remove" }

// joins tells whether o belongs to the update that e begins.
func (e event) joins(o event) bool {
	same := func(x event) bool { return x.kind == o.kind && x.name == o.name }
	return e.changes() && o.changes() && !same(e) && !slices.ContainsFunc(e.more, same)
}

func readTranscripts(t testing.TB) []transcript {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "transcripts", "*.txt"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	slices.Sort(files)
	var all []transcript
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		tr := transcript{name: strings.TrimSuffix(filepath.Base(file), ".txt"), delta: lines[0] == "delta"}
		for _, line := range lines[1:] {
			e, err := parseEvent(line)
			if err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
			if n := len(tr.lines); n > 0 && tr.lines[n-1].joins(e) {
				tr.lines[n-1].more = append(tr.lines[n-1].more, e)
			} else {
				tr.lines = append(tr.lines, e)
			}
		}
		all = append(all, tr)
	}
	return all
}

func parseEvent(line string) (event, error) {
	words := strings.Fields(line)
	e := event{verb: words[0], lists: map[string][]string{}}
	switch e.verb {
	case "reconnect":
		return e, nil
	case "pass":
		var err error
		e.pass, err = time.ParseDuration(words[1])
		return e, err
	}
	kind, ok := mesh.ParseType(words[1])
	if !ok {
		return e, fmt.Errorf("type %q", words[1])
	}
	e.kind = kind
	for _, word := range words[2:] {
		key, names, list := strings.Cut(word, "=")
		switch {
		case !list:
			e.name = word
		case names != "":
			e.lists[key] = strings.Split(names, ",")
		}
	}
	return e, nil
}

// replay runs a transcript; without data exactly as it was recorded.
func replay(t fataler, tr transcript, data []byte) {
	t.Helper()
	m, mutated := &model{t: t, in: data, now: time.Unix(1000, 0)}, len(data) > 0
	m.run(func() {
		m.setUp(tr.delta)
		labels := map[mesh.ResourceName]int{}
		for i := range tr.lines {
			next := tr.lines[min(i+1, len(tr.lines)-1)]
			for _, e := range m.mutate(tr.lines[i], next) {
				m.event(e, labels)
				m.pump()
				m.verify()
			}
		}
		if m.unasked && !mutated {
			m.fail("an answer that was recorded has nothing to answer: the replay is not what happened")
		}
		m.finish()
	})
}

// mutate gives what happens in place of e.
func (m *model) mutate(e, next event) []event {
	switch m.pick(16) {
	case 1:
		return nil
	case 2:
		return []event{e, e}
	case 3:
		return []event{next, e}
	case 4: // the other answer
		if other := map[string]string{"ack": "nack", "nack": "ack"}[e.verb]; other != "" {
			e.verb = other
		}
	case 5:
		if e.changes() {
			return []event{e}
		}
		e.verb = []string{"ask", "again", "ack", "nack", e.verb}[m.pick(5)]
		e.kind = allTypes[m.pick(len(allTypes))]
	case 6: // other names
		lists := map[string][]string{}
		for _, key := range []string{"names", "subscribe", "unsubscribe", "initial"} {
			lists[key] = m.names()
		}
		e.lists = lists
	case 7:
		return []event{e, {verb: "reconnect"}}
	case 8, 9:
		return []event{{verb: "step"}, e}
	case 10:
		return []event{{verb: "pass", pass: time.Duration(m.pick(16)) * time.Second}, e}
	}
	return []event{e}
}

func (m *model) event(e event, labels map[mesh.ResourceName]int) {
	switch e.verb {
	case "put", "remove":
		m.change(e, labels)
	case "pass":
		m.now = m.now.Add(e.pass)
		m.note("pass %v", e.pass)
		m.published(m.reader.View())
		m.tick()
	case "reconnect":
		m.note("reconnect")
		m.client.disconnect()
		for _, ct := range m.client.types { // what it still wants, the lines that follow say
			ct.intent = subscription{names: map[string]bool{}}
		}
		m.open()
	case "step":
		m.step()
	case "ack", "nack":
		m.unasked = m.unasked || len(m.client.typ(e.kind).queue) == 0
		m.answerWith(e.kind, e.verb == "ack", func(r *ads.Request) { m.fill(r, e) })
	case "ask", "again":
		r := ads.Request{Type: e.kind}
		if e.verb == "again" && len(m.client.typ(e.kind).queue) == 0 {
			r.Nonce = m.client.typ(e.kind).last
		}
		m.fill(&r, e)
		m.send(r)
	}
}

// change publishes an update. labels: resource → the number of its form.
func (m *model) change(e event, labels map[mesh.ResourceName]int) {
	var u mesh.Update
	all := append([]event{e}, e.more...)
	for _, e := range all {
		name := mesh.ResourceName{Type: e.kind, Name: e.name}
		labels[name]++
		m.note("%s %s %s label=%d", e.verb, e.kind.Short(), e.name, labels[name])
		if e.verb == "put" {
			u.Put = append(u.Put, resource(e.kind, e.name, labels[name], 0))
		} else {
			u.Remove = append(u.Remove, mesh.Removal{ResourceName: name})
		}
	}
	m.truth.publish(u, m.now)
	for _, e := range all {
		m.check.changed(mesh.ResourceName{Type: e.kind, Name: e.name})
	}
	m.published(m.reader.View())
}

// fill takes the names of e. What the client says that it holds, it holds.
func (m *model) fill(r *ads.Request, e event) {
	if !m.client.delta {
		r.Names = e.lists["names"]
		return
	}
	ct := m.client.typ(e.kind)
	r.Subscribe, r.Unsubscribe, r.Initial = e.lists["subscribe"], e.lists["unsubscribe"], map[string]string{}
	for _, name := range e.lists["initial"] {
		if v, ok := ct.held[name]; ok {
			r.Initial[name] = string(v)
		}
	}
	if !ct.known && !r.Refused { // what it does not claim to hold it must not count on
		maps.DeleteFunc(ct.held, func(name string, _ mesh.Version) bool { return r.Initial[name] == "" })
	}
}
