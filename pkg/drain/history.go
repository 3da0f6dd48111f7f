package drain

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Use is one resource that lists an endpoint, or did.
type Use struct {
	Resource mesh.ResourceName
	// Name is Resource.Name, interned.
	Name     mesh.Name
	Endpoint netip.AddrPort
	// Clean is the generation since which no form of the resource lists the
	// endpoint as usable; 0 while one may. Since is when that began.
	Clean mesh.Generation
	Since time.Time
}

// DefaultLimit is how many past uses a History remembers: those of days in most meshes.
const DefaultLimit = 100_000

// History remembers which resources list which endpoints, and which did.
type History struct {
	limit int

	mu sync.Mutex // guards what follows
	// usable: resource → the endpoints that some form of it may list as usable, sorted.
	usable map[mesh.ResourceName][]netip.AddrPort
	// uses: address → its uses, in no order.
	uses map[netip.Addr][]Use
	// past are the uses that are over, oldest first, and those of them that began anew.
	past []Use
	// horizon is until when nothing is remembered, forgotten until which generation
	// a form may have listed what is forgotten.
	horizon   time.Time
	forgotten mesh.Generation
	inline    bool
}

// NewHistory begins at start, with nothing before it. limit bounds the uses
// that are over and still remembered; 0 means DefaultLimit.
func NewHistory(start time.Time, limit int) *History {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &History{
		limit: limit, horizon: start,
		usable: make(map[mesh.ResourceName][]netip.AddrPort), uses: make(map[netip.Addr][]Use),
	}
}

// Note takes an update that is about to be published as generation g. Only the
// goroutine that publishes may call it. A form that cannot be read lists what the form before did.
// Endpoints inside a cluster that was not read from a file are of somebody who dials a pod by its own
// address (docs/design/0006), whatever is said of it: no configuration could end that.
func (h *History) Note(u mesh.Update, g mesh.Generation, at time.Time) {
	for _, r := range u.Put {
		if !slices.Contains(Types[:], r.Type) {
			continue
		}
		var listing Listing
		if r.Type != mesh.TypeCluster || r.Static {
			var err error
			if listing, err = List(r.Type, r.Body); err != nil {
				continue
			}
		}
		h.set(mesh.ResourceName{Type: r.Type, Name: r.Name}, usable(listing, r.ShapedBy != 0), g, at)
	}
	for _, r := range u.Remove {
		h.set(r.ResourceName, nil, g, at)
	}
}

// usable gives what a listing may be used for, sorted. A shape lists nothing
// that the body does not, but may have another health for it.
func usable(l Listing, shaped bool) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(l))
	for at, is := range l {
		if is || shaped {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

func (h *History) set(name mesh.ResourceName, now []netip.AddrPort, g mesh.Generation, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.usable[name]
	if slices.Equal(old, now) {
		return
	}
	h.inline = h.inline || name.Type == mesh.TypeCluster
	interned := mesh.Intern(name.Name)
	for _, e := range now {
		if _, had := slices.BinarySearchFunc(old, e, netip.AddrPort.Compare); !had {
			h.begin(Use{Resource: name, Name: interned, Endpoint: e, Since: at})
		}
	}
	for _, e := range old {
		if _, has := slices.BinarySearchFunc(now, e, netip.AddrPort.Compare); !has {
			h.end(Use{Resource: name, Name: interned, Endpoint: e, Clean: g, Since: at})
		}
	}
	if len(now) > 0 {
		h.usable[name] = now
	} else {
		delete(h.usable, name)
	}
	h.trim()
}

func (h *History) find(u Use) (int, bool) {
	i := slices.IndexFunc(h.uses[u.Endpoint.Addr()], func(o Use) bool { return o.Resource == u.Resource && o.Endpoint == u.Endpoint })
	return i, i >= 0
}

func (h *History) begin(u Use) {
	if i, ok := h.find(u); ok {
		h.uses[u.Endpoint.Addr()][i] = u
		return
	}
	h.uses[u.Endpoint.Addr()] = append(h.uses[u.Endpoint.Addr()], u)
}

func (h *History) end(u Use) {
	if i, ok := h.find(u); ok {
		h.uses[u.Endpoint.Addr()][i] = u
	}
	h.past = append(h.past, u)
}

// trim forgets the oldest uses that are over.
func (h *History) trim() {
	for len(h.past) > h.limit {
		oldest := h.past[0]
		h.past = h.past[1:]
		h.horizon, h.forgotten = oldest.Since, oldest.Clean
		ip := oldest.Endpoint.Addr()
		if i, ok := h.find(oldest); ok && h.uses[ip][i].Clean == oldest.Clean {
			h.uses[ip] = slices.Delete(h.uses[ip], i, i+1)
		}
		if len(h.uses[ip]) == 0 {
			delete(h.uses, ip)
		}
	}
}

// Recall is what a History knows of some endpoints.
type Recall struct {
	Uses []Use
	// Horizon: what a node holds from that time or before may list any endpoint.
	Horizon time.Time
	// Forgotten: so may a form that was not current at this generation or later.
	Forgotten mesh.Generation
	// Inline: there are, or were, clusters with endpoints inside them.
	Inline bool
}

// Recall gives the uses of the endpoints that match one of those given, in no order.
func (h *History) Recall(of []Endpoint) Recall {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := Recall{Horizon: h.horizon, Forgotten: h.forgotten, Inline: h.inline}
	for _, e := range of {
		for _, u := range h.uses[e.Address] {
			if e.Port == 0 || e.Port == u.Endpoint.Port() {
				out.Uses = append(out.Uses, u)
			}
		}
	}
	return out
}
