package snapshot

import (
	"bytes"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// entry is one resource at one generation, in all the forms that views have
// asked for. The forms are made when first asked for, and again in Publish for
// those that the entry before had, so that a view whose form did not change
// keeps the old Body with the old generation.
type entry struct {
	// set once
	name      mesh.Name
	res       mesh.Resource
	changed   mesh.Generation
	changedAt time.Time
	base      *Body

	mu sync.Mutex // guards shapes, and is held over res.Shape, which is pure: a form is made once
	// shapes: masked view → form; only for a resource with a shape.
	shapes map[mesh.View]*Body
}

func newEntry(res mesh.Resource, g mesh.Generation, at time.Time) *entry {
	name := mesh.Intern(res.Name)
	return &entry{
		name: name, res: res, changed: g, changedAt: at,
		base: newBody(res.Type, name, res.Body, g),
	}
}

// visible tells whether nodes of the view may see the resource at all.
func (e *entry) visible(v mesh.View) bool {
	return e.res.For == mesh.ListenersAny || e.res.For == v.Listeners
}

// body gives the form for a view.
func (e *entry) body(v mesh.View) *Body {
	if e.res.ShapedBy == 0 {
		return e.base
	}
	key := v.Mask(e.res.ShapedBy)
	if key == (mesh.View{}) {
		return e.base
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.shapes[key]; ok {
		return b
	}
	// A form that Publish did not carry over belongs to a view that is new
	// since: calling it changed now can only cause one resend too many.
	return e.addShape(key, newBody(e.res.Type, e.name, e.res.Shape(key), e.changed))
}

func (e *entry) addShape(key mesh.View, b *Body) *Body {
	if e.shapes == nil {
		e.shapes = make(map[mesh.View]*Body)
	}
	e.shapes[key] = b
	return b
}

// follow takes over from the entry before: forms whose bytes did not change
// keep their Body, and with it their generation. wanted are the masked views
// that somebody still has open. It reports whether the resource has to be
// published; one with a shape always has, since two functions cannot be compared.
func (e *entry) follow(old *entry, wanted map[mesh.View]bool) bool {
	if old.res.ShapedBy != e.res.ShapedBy || old.res.For != e.res.For || old.res.Static != e.res.Static {
		// Who sees what has changed, even if the bytes did not.
		return true
	}
	if old.base.Version == e.base.Version {
		e.base = old.base
	}
	if e.res.ShapedBy == 0 {
		return e.base != old.base
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	for key, was := range old.shapes {
		if !wanted[key] {
			continue
		}
		value := e.res.Shape(key)
		if bytes.Equal(value, was.Value()) {
			e.addShape(key, was)
		} else {
			e.addShape(key, newBody(e.res.Type, e.name, value, e.changed))
		}
	}
	return true
}

// versions gives the version of each form, for the log; nil without shapes.
func (e *entry) versions() map[mesh.View]mesh.Version {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.shapes) == 0 {
		return nil
	}
	out := make(map[mesh.View]mesh.Version, len(e.shapes))
	for key, b := range e.shapes {
		out[key] = b.Version
	}
	return out
}
