package ads

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Change is one change on its way to the client: what one object's change made
// of the resources, in one publication.
type Change struct {
	Cause       mesh.Cause
	PublishedAt time.Time
	// SentAt is when the response that completed it was handed out.
	SentAt time.Time
}

// changeKey tells changes apart.
type changeKey struct {
	published       int64
	object          mesh.Key
	resourceVersion string
}

func (c Change) key() changeKey {
	return changeKey{c.PublishedAt.UnixNano(), c.Cause.Object, c.Cause.ResourceVersion}
}

// changesIn gives the changes of which a response carries a part, each once.
// What the client asked for is not on its way because of a change.
func (s *Stream) changesIn(t mesh.Type, c content, now time.Time) []Change {
	var out []Change
	seen := make(map[changeKey]struct{})
	for _, carried := range c.carried {
		change, ok := s.awaited(t, carried.Name)
		if !ok {
			continue
		}
		if _, again := seen[change.key()]; again {
			continue
		}
		seen[change.key()] = struct{}{}
		change.SentAt = now
		out = append(out, change)
	}
	return out
}

// completed gives those of the changes of a response, now acknowledged, of which
// the client lacks no other part: a new service is a change of four types, and it
// has arrived with the last of them.
func (s *Stream) completed(changes []Change) []Change {
	if len(changes) == 0 {
		return nil
	}
	lacking := make(map[changeKey]struct{})
	for t := range s.types {
		for _, name := range s.acks.Type(t).Lacking() {
			if change, ok := s.awaited(t, name); ok {
				lacking[change.key()] = struct{}{}
			}
		}
	}
	return slices.DeleteFunc(changes, func(c Change) bool {
		_, ok := lacking[c.key()]
		return ok
	})
}

// awaited gives the change of a resource that the client lacks; false where it lacks none.
func (s *Stream) awaited(t mesh.Type, name mesh.Name) (Change, bool) {
	tr := s.acks.Type(t)
	if !tr.AwaitsChange(name) {
		return Change{}, false
	}
	at, cause, ok := s.view.CauseSince(t, name, tr.Since(name))
	return Change{Cause: cause, PublishedAt: at}, ok
}
