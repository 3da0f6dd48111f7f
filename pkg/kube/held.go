package kube

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// held is what the sink was told of one kind: its feed writes it, its checker
// compares it with live reads. All methods are safe for concurrent use.
type held struct {
	mu sync.Mutex // guards all below
	// objects has what the sink was told to exist, and in which form.
	objects map[mesh.Key]form
	// watermark is the resource version up to which everything was delivered;
	// "" before the first listing.
	watermark string
	// rewinds counts how often the server went back to an older state.
	rewinds uint64
	// removed has what was deleted since track was called; nil when nobody wants to know.
	removed map[mesh.Key]bool
}

// form tells an object's forms apart.
type form struct{ uid, version string }

func newHeld() *held { return &held{objects: make(map[mesh.Key]form)} }

// mark is the watermark.
func (h *held) mark() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watermark
}

// advance moves the watermark. It tells whether that went backwards, which
// watches of one server never do.
func (h *held) advance(version string) (back bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before(version, h.watermark) {
		return true
	}
	if version != "" {
		h.watermark = version
	}
	return false
}

// outdated tells whether a form is an older one of what is held.
func (h *held) outdated(key mesh.Key, f form) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, known := h.objects[key]
	return known && old.uid == f.uid && before(f.version, old.version)
}

// put notes a form; it gives the rewinds until now.
func (h *held) put(key mesh.Key, f form) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[key] = f
	return h.rewinds
}

// remove forgets an object; it gives the rewinds until now.
func (h *held) remove(key mesh.Key) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.objects, key)
	if h.removed != nil {
		h.removed[key] = true
	}
	return h.rewinds
}

// rewound is the rewinds until now.
func (h *held) rewound() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rewinds
}

// listing is what a full listing means for what was held before it.
type listing struct {
	// gone is what the listing does not have.
	gone map[mesh.Key]form
	// news tells that anything differs; rewound, that the server went back.
	news, rewound bool
}

// begin takes a full listing in, and moves the watermark to its version, which
// may be an older one; wentBack tells that the server is known to have gone
// back. Who compares meanwhile finds all of it; the caller puts and removes the objects next.
func (h *held) begin(listed map[mesh.Key]form, version string, wentBack bool) listing {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := listing{gone: make(map[mesh.Key]form), rewound: wentBack || before(version, h.watermark)}
	for key, now := range listed {
		old, known := h.objects[key]
		l.news = l.news || old != now
		l.rewound = l.rewound || known && old.uid == now.uid && before(now.version, old.version)
	}
	for key, old := range h.objects {
		if _, ok := listed[key]; !ok {
			l.gone[key] = old
			l.news = true
		}
	}
	if l.rewound {
		h.rewinds++
	}
	h.objects = maps.Clone(listed)
	for key := range l.gone {
		if h.removed != nil {
			h.removed[key] = true
		}
	}
	h.watermark = version
	return l
}

// track notes deletions from now on.
func (h *held) track() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed = make(map[mesh.Key]bool)
}

// untrack ends that.
func (h *held) untrack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed = nil
}

// difference is why what is held and a live listing cannot both be right, and one
// object that shows it. certain tells that time makes it no better: the watch has passed that change, or the server went back.
type difference struct {
	reason  relistReason // "" for none
	key     mesh.Key
	certain bool
}

// differs compares what is held with a full live listing of the given version
// that was made since track. What changed after the listing is no difference.
// Of several, a certain one is given.
func (h *held) differs(live map[mesh.Key]form, version string) difference {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found difference
	note := func(d difference) {
		if found.reason == "" || d.certain {
			found = d
		}
	}
	later := func(f form) bool { return before(version, f.version) }
	for key, now := range live {
		old, known := h.objects[key]
		switch {
		case !known && h.removed[key], known && (old == now || later(old)):
		case known && old.uid == now.uid && before(now.version, old.version):
			note(difference{rewound, key, true})
		default:
			note(difference{deaf, key, h.passed(now.version)})
		}
		if found.certain {
			return found
		}
	}
	for key, old := range h.objects {
		if _, ok := live[key]; !ok && !later(old) {
			note(difference{deaf, key, h.passed(version)})
		}
	}
	return found
}

// passed tells whether everything up to a version has been delivered. Guarded by mu.
func (h *held) passed(version string) bool {
	return comparableVersion(version) && comparableVersion(h.watermark) && !before(h.watermark, version)
}

// before tells whether resource version a is older than b (KEP-5504). Versions
// that cannot be compared are not.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// comparableVersion tells whether a resource version can be compared with others.
func comparableVersion(v string) bool {
	_, err := resourceversion.CompareResourceVersion(v, v)
	return err == nil
}
