package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"pgregory.net/rapid"
)

func name(s string) mesh.ResourceName {
	return mesh.ResourceName{Type: mesh.TypeEndpoint, Name: s}
}

// The log has the newest changes within its limit, all after its floor, and counts the others.
func TestLogIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		l := New(limit)
		l.Begin(3, time.Unix(0, 0))
		var all []Entry
		dropped := 0
		for g := range rapid.IntRange(0, 60).Draw(t, "changes") {
			e := Entry{
				Generation: mesh.Generation(4 + g), Resource: name(fmt.Sprint(g % 3)), PublishedAt: time.Unix(int64(g), 0),
				Endpoints: make([]EndpointChange, rapid.IntRange(0, 8).Draw(t, "endpoints")),
			}
			all = append(all, e)
			dropped += l.Add(e)
		}
		kept, floor := l.Of(name("0"), name("1"), name("2"))
		lines, gone := l.Size()
		want := 0
		for i := range kept {
			if kept[i].Generation != all[len(all)-len(kept)+i].Generation {
				t.Fatalf("kept %+v", kept)
			}
			want += kept[i].lines()
		}
		switch {
		case lines != want, lines > limit && len(kept) > 1, int(gone) != dropped, dropped != len(all)-len(kept):
			t.Fatalf("limit %d: %d lines, want %d; %d of %d kept, %d dropped, %d told", limit, lines, want, len(kept), len(all), gone, dropped)
		case dropped == 0 && (!floor.Start || floor.Generation != 3):
			t.Fatalf("floor %+v", floor)
		case dropped > 0 && (floor.Start || floor.Generation != kept[0].Generation-1):
			t.Fatalf("floor %+v, first %d", floor, kept[0].Generation)
		}
		if one, _ := l.Of(name("1")); len(one) > len(all)/3+1 {
			t.Fatalf("%d of one resource", len(one))
		}
	})
}

func TestLogNames(t *testing.T) {
	l := New(0)
	cds := mesh.ResourceName{Type: mesh.TypeCluster, Name: "a"}
	l.Add(Entry{Generation: 1, Resource: cds}, Entry{Generation: 1, Resource: name("b")}, Entry{Generation: 2, Resource: cds})
	if got := l.Names(mesh.TypeCluster); len(got) != 1 || got[0] != "a" {
		t.Errorf("got %q", got)
	}
}

// A publication costs what it changes, however much there is.
func BenchmarkAdd(b *testing.B) {
	l := New(0)
	e := Entry{Resource: name("a"), Endpoints: make([]EndpointChange, 3)}
	b.ReportAllocs()
	for b.Loop() {
		e.Generation++
		l.Add(e)
	}
}
