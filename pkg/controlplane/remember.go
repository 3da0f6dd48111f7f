package controlplane

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// remember notes what a publication changed, once the server serves: what was
// there at the start is no change.
func (l *loop) remember(u mesh.Update, before, after *snapshot.Snapshot, at time.Time) {
	if !l.synced.Load() {
		return
	}
	entries := entriesOf(u, before, after, at)
	l.metrics.historyDropped.Add(float64(l.history.Add(entries...)))
	l.metrics.published(entries)
	if l.onPublished != nil {
		l.onPublished(entries)
	}
}

// entriesOf gives what an update came to. It costs what the update is.
func entriesOf(u mesh.Update, before, after *snapshot.Snapshot, at time.Time) []history.Entry {
	entries := make([]history.Entry, 0, len(u.Put)+len(u.Remove))
	for i := range u.Put {
		r := &u.Put[i]
		name := mesh.ResourceName{Type: r.Type, Name: r.Name}
		version, changed := after.Form(name)
		if changed != after.Generation() {
			continue // as it was
		}
		e := history.Entry{Resource: name, What: history.Changed, Version: version, Cause: r.Cause}
		old, was := before.Resource(name)
		if !was {
			e.What = history.Added
		}
		if r.Type == mesh.TypeEndpoint {
			e.Endpoints, e.More = history.Diff(old.Body, r.Body)
		}
		entries = append(entries, e)
	}
	for i := range u.Remove {
		r := &u.Remove[i]
		old, was := before.Resource(r.ResourceName)
		if !was {
			continue
		}
		e := history.Entry{Resource: r.ResourceName, What: history.Removed, Cause: r.Cause}
		if r.Type == mesh.TypeEndpoint {
			e.Endpoints, e.More = history.Diff(old.Body, nil)
		}
		entries = append(entries, e)
	}
	for i := range entries {
		entries[i].Generation, entries[i].PublishedAt = after.Generation(), at
	}
	return entries
}

// receivedAt says of changes of static resources when they came, unless they were
// there before the sync; what a file had hidden and shows again has not changed itself.
func receivedAt(u mesh.Update, at time.Time, synced bool) {
	stamp := func(c *mesh.Cause) {
		c.ChangedAt, c.ChangedBy, c.ReceivedAt = time.Time{}, "", time.Time{}
		if synced && c.Object.Kind == mesh.KindFile {
			c.ChangedAt, c.ChangedBy, c.ReceivedAt = at, mesh.ByReceipt, at
		}
	}
	for i := range u.Put {
		stamp(&u.Put[i].Cause)
	}
	for i := range u.Remove {
		stamp(&u.Remove[i].Cause)
	}
}
