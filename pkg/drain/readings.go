package drain

import "github.com/freshmesh/freshmesh/pkg/mesh"

// Readings keeps the listings of forms, so that each is read once. One goroutine at a time may use it.
type Readings struct {
	listings map[form]Listing
	used     map[form]Listing
}

type form struct {
	resource mesh.ResourceName
	version  mesh.Version
}

// NewReadings keeps nothing yet.
func NewReadings() *Readings {
	return &Readings{listings: make(map[form]Listing), used: make(map[form]Listing)}
}

// Of gives the listing of a form; false where it cannot be read. value gives its bytes.
func (r *Readings) Of(resource mesh.ResourceName, version mesh.Version, value func() []byte) (Listing, bool) {
	key := form{resource, version}
	l, known := r.used[key]
	if known {
		return l, true
	}
	if l, known = r.listings[key]; !known {
		var err error
		if l, err = List(resource.Type, value()); err != nil {
			return nil, false
		}
	}
	r.used[key] = l
	return l, true
}

// Turn forgets what was not used since the last Turn.
func (r *Readings) Turn() { r.listings, r.used = r.used, make(map[form]Listing) }
