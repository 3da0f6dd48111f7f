package snapshot_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

func second(n int64) time.Time { return time.Unix(n, 0) }

func putOne(s *snapshot.Store, name, body string, n int64) {
	s.Publish(mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: name, Body: []byte(body)}}}, second(n))
}

// TestCurrentAfter: a version was current at or after a generation exactly if
// it still is, or was replaced later.
func TestCurrentAfter(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	putOne(s, "a", "v1", 1)
	putOne(s, "b", "other", 2)
	putOne(s, "a", "v2", 3)
	putOne(s, "a", "v3", 4)
	s.Publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}}}}, second(5))
	v := s.View(mesh.View{})
	for body, last := range map[string]mesh.Generation{"v1": 2, "v2": 3, "v3": 4} { // the last generation in which it was current
		for g := range mesh.Generation(7) {
			if got, want := v.CurrentAfter(mesh.TypeEndpoint, mesh.Intern("a"), mesh.VersionOf([]byte(body)), g), g <= last; got != want {
				t.Errorf("%s after %d: %v, want %v", body, g, got, want)
			}
		}
	}
	for _, version := range []mesh.Version{"", mesh.VersionUnknown, "0123456789abcdef"} {
		if v.CurrentAfter(mesh.TypeEndpoint, mesh.Intern("a"), version, 0) {
			t.Errorf("version %q was never", version)
		}
	}
	if !v.CurrentAfter(mesh.TypeEndpoint, mesh.Intern("b"), mesh.VersionOf([]byte("other")), 5) {
		t.Error("b is current")
	}
	if v.CurrentAfter(mesh.TypeEndpoint, mesh.Intern("b"), mesh.VersionOf([]byte("other")), 6) {
		t.Error("generation 6 is not there yet")
	}
}

func TestVersionsAndDigests(t *testing.T) {
	one, two := snapshot.New(snapshot.Config{}), snapshot.New(snapshot.Config{})
	putOne(one, "a", "v1", 1)
	putOne(one, "b", "v1", 2)
	putOne(two, "b", "v0", 1)
	putOne(two, "a", "v1", 2)
	if cmp.Equal(one.Snapshot().Digests(), two.Snapshot().Digests()) {
		t.Error("equal digests of what differs")
	}
	putOne(two, "b", "v1", 2)
	if diff := cmp.Diff(one.Snapshot().Digests(), two.Snapshot().Digests()); diff != "" {
		t.Errorf("digests of the same (-one +two):\n%s", diff)
	}
	two.Publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}}}}, second(3))
	version := func(body string) mesh.Version { return mesh.VersionOf([]byte(body)) }
	want := []snapshot.Versions{
		{Name: "a", ChangedAt: second(3), Past: []snapshot.Past{{version("v1"), second(3)}, {"", second(2)}}},
		{Name: "b", Version: version("v1"), ChangedAt: second(2), Past: []snapshot.Past{{version("v0"), second(2)}, {"", second(1)}}},
	}
	if diff := cmp.Diff(want, two.Snapshot().Versions(mesh.TypeEndpoint)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}
