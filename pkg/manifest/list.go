package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// list brings the state up to the directory as it is now. At the start nothing
// is held back as a possible middle of a save.
func (s *Source) list(now time.Time, start bool) error {
	s.burst, s.again = time.Time{}, time.Time{}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.publish(now, err)
		return fmt.Errorf("read manifests: %w", err)
	}
	changed := false
	listed := make(map[string]bool, len(entries))
	for _, e := range entries {
		if !isManifest(e.Name()) || s.isDir(e) {
			continue
		}
		listed[e.Name()] = true
		f := s.files[e.Name()]
		if f == nil {
			f = &file{name: e.Name()}
			s.files[f.name] = f
		}
		f.gone = time.Time{}
		if v, ok := f.read(s.dir, s.maxBytes, now); ok {
			f.held, f.touched = &v, now
		}
	}
	for name, f := range s.files {
		if listed[name] {
			changed = s.settle(f, now, start) || changed
		} else {
			changed = s.drop(f, now) || changed
		}
	}
	if changed {
		s.deliver()
	}
	s.publish(now, nil)
	return nil
}

// isDir tells whether an entry is a directory, or leads to one.
func (s *Source) isDir(e os.DirEntry) bool {
	if e.Type()&os.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(s.dir + string(os.PathSeparator) + e.Name())
	return err == nil && info.IsDir()
}

// settle puts a file's held version in force, unless it may be the middle of a
// save and is too young. It tells whether anything changed.
func (s *Source) settle(f *file, now time.Time, start bool) bool {
	if f.held == nil {
		return false
	}
	doubtful := !f.held.valid || f.held.cut || s.loses(f, f.held.objects)
	if !start && doubtful && !s.ripe(f.touched, now) {
		return false
	}
	f.apply()
	return true
}

// drop forgets a file that is no longer listed, once it is clear that it is
// not about to come back. It tells whether it did.
func (s *Source) drop(f *file, now time.Time) bool {
	if f.gone.IsZero() {
		f.gone = now
	}
	if s.loses(f, nil) && !s.ripe(f.gone, now) {
		return false
	}
	delete(s.files, f.name)
	return true
}

// ripe tells whether a change of that age counts, and if not, sees to it that
// it is looked at again when it does.
func (s *Source) ripe(since, now time.Time) bool {
	at := since.Add(settleTime)
	if !now.Before(at) {
		return true
	}
	if s.again.IsZero() || at.Before(s.again) {
		s.again = at
	}
	return false
}

// loses tells whether an object would be gone if the file gave these objects
// instead of what it has in force: one that no other file gives either.
func (s *Source) loses(f *file, instead []mesh.Object) bool {
	lost := make(map[mesh.Key]bool, len(f.inForce.objects))
	for _, o := range f.inForce.objects {
		lost[o.Metadata().Key] = true
	}
	for _, o := range instead {
		delete(lost, o.Metadata().Key)
	}
	if len(lost) == 0 {
		return false
	}
	for _, other := range s.files {
		if other == f || !other.gone.IsZero() {
			continue
		}
		for _, o := range other.coming() {
			delete(lost, o.Metadata().Key)
		}
	}
	return len(lost) > 0
}

// coming are the objects that a file gives, or is about to give.
func (f *file) coming() []mesh.Object {
	if f.held != nil && f.held.valid {
		return f.held.objects
	}
	return f.inForce.objects
}

// deliver tells the sink what differs from what it was told before, in the order of keys.
func (s *Source) deliver() {
	next := make(map[mesh.Key]mesh.Object, len(s.delivered))
	s.clashes = nil
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		v := s.files[name].inForce
		for i, o := range v.objects {
			m := o.Metadata()
			if first, ok := next[m.Key]; ok {
				s.clashes = append(s.clashes, clash(first.Metadata(), m, v.lines[i]))
				continue
			}
			next[m.Key] = o
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.delivered), compareKeys) {
		if next[key] == nil {
			s.sink.Delete(*s.delivered[key].Metadata())
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(next), compareKeys) {
		o := next[key]
		if old := s.delivered[key]; old == o || reflect.DeepEqual(old, o) {
			continue
		}
		s.sink.Put(o)
	}
	s.delivered = next
}

// clash says that an object stands twice.
func clash(first, second *mesh.Meta, line int) mesh.Problem {
	where := fmt.Sprintf("%s (%s)", second.Origin, lineField(line))
	return mesh.Problem{
		Object: second.String(),
		Reason: fmt.Sprintf("defined again in %s; the one in %s holds", where, first.Origin),
	}
}

func compareKeys(a, b mesh.Key) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// answer reads everything again, and then gives one service and its slices.
func (s *Source) answer(service mesh.Key) answer {
	for _, f := range s.files {
		f.dirty = true
	}
	if err := s.list(time.Now(), false); err != nil {
		return answer{err: err}
	}
	service.Kind = mesh.KindService
	var found []mesh.Object
	for _, key := range slices.SortedFunc(maps.Keys(s.delivered), compareKeys) {
		o := s.delivered[key]
		if slice, ok := o.(*mesh.EndpointSlice); key == service || ok && slice.ServiceKey() == service {
			found = append(found, o)
		}
	}
	return answer{objects: found}
}

// publish replaces the status after a listing. The sink hears of the first
// good one once its objects are delivered.
func (s *Source) publish(now time.Time, failure error) {
	old := s.status.Load()
	next := &mesh.SourceStatus{
		Synced:     old.Synced || failure == nil,
		Connected:  failure == nil,
		Since:      old.Since,
		LastSeenAt: old.LastSeenAt,
		Problems:   s.collect(),
	}
	if failure == nil {
		next.LastSeenAt = now
	} else {
		next.Reason = fmt.Sprintf("cannot list %s: %s", s.dir, oneLine(shorten(failure)))
	}
	if next.Synced != old.Synced || next.Connected != old.Connected {
		next.Since = now
		s.logChange(next)
	}
	s.status.Store(next)
	if next.Synced && !old.Synced {
		s.sink.Synced()
	}
}

func (s *Source) logChange(next *mesh.SourceStatus) {
	if next.Connected {
		s.log.Info("directory listed", "dir", s.dir, "objects", len(s.delivered))
		return
	}
	s.log.Warn("directory lost, its objects stay", "dir", s.dir, "reason", next.Reason)
}

// collect gives all problems, sorted, and logs those that are new.
func (s *Source) collect() []mesh.Problem {
	all := slices.Clone(s.clashes)
	for _, f := range s.files {
		all = append(all, f.inForce.problems...)
		all = append(all, f.inForce.objectProblems...)
	}
	slices.SortFunc(all, compareProblems)
	all = slices.Compact(all)
	if slices.Equal(all, s.problems) {
		return s.problems
	}
	for _, p := range all {
		if _, known := slices.BinarySearchFunc(s.problems, p, compareProblems); !known {
			s.log.Warn("problem in a manifest", "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
	}
	s.problems = all
	return all
}

func compareProblems(a, b mesh.Problem) int {
	return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Field, b.Field), strings.Compare(a.Reason, b.Reason))
}
