package directory

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// list brings the state up to the directory as it is now. At the start nothing
// is held back as a possible middle of a save.
func (w *Watcher[K, V]) list(now time.Time, start bool) error {
	w.burst, w.again = time.Time{}, time.Time{}
	entries, err := os.ReadDir(w.cfg.Dir)
	if err != nil {
		w.publish(now, err)
		return fmt.Errorf("read %s: %w", w.cfg.What, err)
	}
	changed := false
	listed := make(map[string]bool, len(entries))
	for _, e := range entries {
		if !isOurs(e.Name()) || w.isDir(e) {
			continue
		}
		listed[e.Name()] = true
		f := w.files[e.Name()]
		if f == nil {
			f = &file[K, V]{name: e.Name()}
			w.files[f.name] = f
		}
		f.gone = time.Time{}
		if v, ok := f.read(&w.cfg, now); ok {
			f.held, f.touched = &v, now
		}
	}
	for name, f := range w.files {
		if listed[name] {
			changed = w.adopt(f, now, start) || changed
		} else {
			changed = w.drop(f, now) || changed
		}
	}
	if changed {
		w.deliver()
	}
	w.publish(now, nil)
	return nil
}

// isDir tells whether an entry is a directory, or leads to one.
func (w *Watcher[K, V]) isDir(e os.DirEntry) bool {
	if e.Type()&os.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(w.cfg.Dir + string(os.PathSeparator) + e.Name())
	return err == nil && info.IsDir()
}

// adopt puts a file's held version in force, unless it may be the middle of a
// save and is too young. It tells whether anything changed.
func (w *Watcher[K, V]) adopt(f *file[K, V], now time.Time, start bool) bool {
	if f.held == nil {
		return false
	}
	doubtful := !f.held.valid || f.held.cut || w.loses(f, f.held.items)
	settle := settleTime
	if len(f.held.items) == 0 {
		settle = emptyTime
	}
	if !start && doubtful && !w.ripe(f.touched.Add(settle), now) {
		return false
	}
	valid := f.held.valid
	f.apply()
	if !start {
		// What is not valid leaves the items of before in force.
		w.log.Info("file changed", "file", f.name, "what", w.cfg.What, "items", len(f.inForce.items), "valid", valid)
	}
	return true
}

// drop forgets a file that is no longer listed, once it is clear that it is
// not about to come back. It tells whether it did.
func (w *Watcher[K, V]) drop(f *file[K, V], now time.Time) bool {
	if f.gone.IsZero() {
		f.gone = now
	}
	if w.loses(f, nil) && !w.ripe(f.gone.Add(settleTime), now) {
		return false
	}
	delete(w.files, f.name)
	w.log.Info("file gone", "file", f.name, "what", w.cfg.What)
	return true
}

// ripe tells whether a change counts that does from a time on, and if not, sees
// to it that it is looked at again then.
func (w *Watcher[K, V]) ripe(at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	if w.again.IsZero() || at.Before(w.again) {
		w.again = at
	}
	return false
}

// loses tells whether an item would be gone if the file gave these
// instead of what it has in force: one that no other file gives either.
func (w *Watcher[K, V]) loses(f *file[K, V], instead []Item[K, V]) bool {
	lost := make(map[K]bool, len(f.inForce.items))
	for _, item := range f.inForce.items {
		lost[item.Key] = true
	}
	for _, item := range instead {
		delete(lost, item.Key)
	}
	if len(lost) == 0 {
		return false
	}
	for _, other := range w.files {
		if other == f || !other.gone.IsZero() {
			continue
		}
		for _, item := range other.coming() {
			delete(lost, item.Key)
		}
	}
	return len(lost) > 0
}

// coming are the items that a file gives, or is about to give.
func (f *file[K, V]) coming() []Item[K, V] {
	if f.held != nil && f.held.valid {
		return f.held.items
	}
	return f.inForce.items
}

// deliver tells what all files hold together.
func (w *Watcher[K, V]) deliver() {
	next := make(map[K]Item[K, V], w.count)
	w.clashes = nil
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		for _, item := range w.files[name].inForce.items {
			if first, ok := next[item.Key]; ok {
				w.clashes = append(w.clashes, clash(first, item))
				continue
			}
			next[item.Key] = item
		}
	}
	w.count = len(next)
	w.cfg.Deliver(next)
}

// clash says that a key stands twice.
func clash[K Key, V any](first, second Item[K, V]) mesh.Problem {
	return mesh.Problem{
		Object: second.Key.String(),
		Reason: fmt.Sprintf("defined again in %s (%s); the one in %s holds", second.File, LineField(second.Line), first.File),
	}
}

// publish replaces the status after a listing. The first good one
// is told once its items are delivered.
func (w *Watcher[K, V]) publish(now time.Time, failure error) {
	old := w.status.Load()
	next := &mesh.SourceStatus{
		Synced:     old.Synced || failure == nil,
		Connected:  failure == nil,
		Since:      old.Since,
		LastSeenAt: old.LastSeenAt,
		Problems:   w.collect(),
	}
	if failure == nil {
		next.LastSeenAt = now
	} else {
		next.Reason = fmt.Sprintf("cannot list %s: %s", w.cfg.Dir, OneLine(shorten(failure)))
	}
	if next.Synced != old.Synced || next.Connected != old.Connected {
		next.Since = now
		w.logChange(next)
	}
	w.status.Store(next)
	if next.Synced && !old.Synced {
		w.cfg.Synced()
	}
}

func (w *Watcher[K, V]) logChange(next *mesh.SourceStatus) {
	if next.Connected {
		w.log.Info("directory listed", "dir", w.cfg.Dir, "what", w.cfg.What, "items", w.count)
		return
	}
	w.log.Warn("directory lost, what it held stays", "dir", w.cfg.Dir, "reason", next.Reason)
}

// collect gives all problems, sorted, and logs those that are new.
func (w *Watcher[K, V]) collect() []mesh.Problem {
	all := slices.Clone(w.clashes)
	for _, f := range w.files {
		all = append(all, f.inForce.problems...)
		all = append(all, f.inForce.itemProblems...)
	}
	slices.SortFunc(all, mesh.Problem.Compare)
	all = slices.Compact(all)
	if slices.Equal(all, w.problems) {
		return w.problems
	}
	for _, p := range all {
		if _, known := slices.BinarySearchFunc(w.problems, p, mesh.Problem.Compare); !known {
			w.log.Warn("problem in a file", "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
	}
	w.problems = all
	return all
}
