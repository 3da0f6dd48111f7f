package controlplane

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// What is published again as it was, or removed though it never was, is no change.
func TestEntriesAreWhatChanged(t *testing.T) {
	store := snapshot.New(snapshot.Config{})
	before, _ := store.Publish(mesh.Update{Put: []mesh.Resource{generatedResource("same", "1"), generatedResource("edited", "1"), generatedResource("gone", "1")}}, time.Unix(1, 0))
	removal := func(name string) mesh.Removal {
		return mesh.Removal{ResourceName: mesh.ResourceName{Type: mesh.TypeCluster, Name: name}}
	}
	u := mesh.Update{
		Put:    []mesh.Resource{generatedResource("same", "1"), generatedResource("edited", "2"), generatedResource("new", "1")},
		Remove: []mesh.Removal{removal("gone"), removal("never")},
	}
	after, _ := store.Publish(u, time.Unix(2, 0))
	got := map[string]history.What{}
	for _, e := range entriesOf(u, before, after, time.Unix(2, 0)) {
		got[e.Resource.Name] = e.What
		if e.Generation != 2 || !e.PublishedAt.Equal(time.Unix(2, 0)) || (e.Version == "") != (e.What == history.Removed) {
			t.Errorf("%+v", e)
		}
	}
	want := map[string]history.What{"edited": history.Changed, "new": history.Added, "gone": history.Removed}
	if len(got) != len(want) || got["edited"] != want["edited"] || got["new"] != want["new"] || got["gone"] != want["gone"] {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A file's change counts from its reading; what shows again because a file has
// gone changed at another time, so its way is not measured.
func TestReceivedOfFiles(t *testing.T) {
	file, old, now := generatedResource("a", "1"), generatedResource("b", "1"), time.Unix(9, 0)
	file.Cause.Object.Kind = mesh.KindFile
	old.Cause.ReceivedAt, old.Cause.ChangedAt = time.Unix(1, 0), time.Unix(1, 0)
	u := mesh.Update{Put: []mesh.Resource{file, old}, Remove: []mesh.Removal{{Cause: file.Cause}}}
	receivedAt(u, now, false)
	if _, watched := u.Put[0].Cause.Took(now); watched {
		t.Error("what was there before the sync is measured")
	}
	receivedAt(u, now, true)
	if _, watched := u.Put[1].Cause.Took(now); watched {
		t.Errorf("measured from %v", u.Put[1].Cause.ReceivedAt)
	}
	for _, c := range []mesh.Cause{u.Put[0].Cause, u.Remove[0].Cause} {
		if took, watched := c.Took(now.Add(time.Second)); !watched || took != time.Second || c.ChangedBy != mesh.ByReceipt {
			t.Errorf("took %v, %v by %s", took, watched, c.ChangedBy)
		}
	}
}
