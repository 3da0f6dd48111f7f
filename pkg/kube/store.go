package kube

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

// What of a feed is the store that its Reflector fills; its goroutine calls all of it.

var (
	_ cache.TransformingStore      = (*feed)(nil)
	_ cache.ReflectorBookmarkStore = (*feed)(nil)
	_ cache.ResourceVersionUpdater = (*feed)(nil)
)

// entry is an object that has been converted. It has so much of an API
// object's metadata as a Reflector's own bookkeeping needs.
type entry struct {
	metav1.ObjectMeta
	key      mesh.Key
	object   mesh.Object
	problems []mesh.Problem
}

func (e *entry) form() form { return form{uid: string(e.UID), version: e.ResourceVersion} }

// Transformer lets the Reflector convert objects as they come off the wire. Of
// a listing that a watch begins with, it is all that is heard.
func (f *feed) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		f.awaitMore()
		return f.entryOf(o)
	}
}

// entryOf converts an API object; an entry is given as it is.
func (f *feed) entryOf(o any) (*entry, error) {
	if e, ok := o.(*entry); ok {
		return e, nil
	}
	r, ok := o.(apiObject)
	if !ok {
		return nil, fmt.Errorf("convert %T: not an API object", o)
	}
	e := &entry{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.GetNamespace(), Name: r.GetName(), UID: r.GetUID(), ResourceVersion: r.GetResourceVersion(),
		},
		key: mesh.Key{Kind: f.kind, Namespace: r.GetNamespace(), Name: r.GetName()},
	}
	var err error
	if e.object, e.problems, err = object.Convert(r); err != nil {
		e.object, e.problems = nil, []mesh.Problem{{Object: e.key.String(), Reason: oneLine(err)}}
	}
	return e, nil
}

type apiObject interface {
	runtime.Object
	metav1.Object
}

// Add is an event of the watch.
func (f *feed) Add(o any) error {
	f.heard()
	e, err := f.entryOf(o)
	if err != nil {
		return err
	}
	if f.held.outdated(e.key, e.form()) {
		f.relist(rewound, e.key.String()+" came in an older form")
		return nil
	}
	f.put(e)
	return nil
}

// Update is an event of the watch.
func (f *feed) Update(o any) error { return f.Add(o) }

// Delete is an event of the watch.
func (f *feed) Delete(o any) error {
	f.heard()
	e, err := f.entryOf(o)
	if err != nil {
		return err
	}
	if f.held.outdated(e.key, e.form()) {
		f.relist(rewound, e.key.String()+" was deleted in an older form")
		return nil
	}
	f.remove(mesh.Meta{Key: e.key, UID: string(e.UID), ResourceVersion: e.ResourceVersion})
	return nil
}

// UpdateResourceVersion follows each event and bookmark.
func (f *feed) UpdateResourceVersion(version string) {
	if f.held.advance(version) {
		f.relist(rewound, "the watch is at version "+version)
	}
}

// Bookmark is an event of the watch: nothing has changed up to that version.
func (f *feed) Bookmark(string) error {
	f.heard()
	return nil
}

// Replace is a full listing.
func (f *feed) Replace(list []any, version string) error {
	entries := make([]*entry, 0, len(list))
	listed := make(map[mesh.Key]form, len(list))
	for _, o := range list {
		e, err := f.entryOf(o)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		listed[e.key] = e.form()
	}
	was := f.held.begin(listed, version, f.restarts.asked() == rewound)
	for _, e := range entries {
		f.put(e)
	}
	for key, form := range was.gone {
		// Without a version: the listing's own is that of all objects. The
		// UID is never used again, so it says enough.
		f.remove(mesh.Meta{Key: key, UID: form.uid})
	}
	if asked := f.restarts.listed(was.news, time.Now(), f.interval); was.rewound && asked != rewound {
		f.noteRelist(rewound, "the listing is at version "+version)
	}
	if f.health.delivered(f.kind) {
		f.sink.Synced()
	}
	f.endListing()
	return nil
}

// Resync never happens: there is nothing here that the sink does not have.
func (f *feed) Resync() error { return nil }

func (f *feed) put(e *entry) {
	f.complain(e.key, e.problems)
	rewinds := f.held.put(e.key, e.form())
	if e.object == nil {
		return
	}
	e.object.Metadata().Rewinds = rewinds
	f.sink.Put(e.object)
}

func (f *feed) remove(m mesh.Meta) {
	f.complain(m.Key, nil)
	m.Rewinds = f.held.remove(m.Key)
	f.sink.Delete(m)
}

// complain passes an object's problems on, or that it has none any more.
func (f *feed) complain(key mesh.Key, problems []mesh.Problem) {
	if len(problems) == 0 && !f.faulty[key] {
		return
	}
	if len(problems) == 0 {
		delete(f.faulty, key)
	} else {
		f.faulty[key] = true
	}
	f.health.found(f.kind, key, problems)
}
