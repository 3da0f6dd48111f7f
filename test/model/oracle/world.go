package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// The types, by the names that the audit gives them.
const (
	CDS = "cds"
	EDS = "eds"
	LDS = "lds"
	RDS = "rds"
)

// Types are all of them.
var Types = [...]string{CDS, EDS, LDS, RDS}

// Service is one HTTP service of port 8080.
type Service struct {
	// Policy is "round-robin" or "ring-hash", Timeout a connect timeout as Go writes it.
	Policy, Timeout string
	Endpoints       []Endpoint
}

// Endpoint is one endpoint of a service; all have different addresses.
type Endpoint struct {
	// Address is IP:PORT, Zone where it is, For the zone that it is meant for ("" for no hint).
	Address, Zone, For string
	// Draining: it still serves while it ends.
	Draining bool
	// Hostname may be "".
	Hostname string
}

// World is what exists, at every moment since the beginning.
type World struct {
	// moments: the services at each, by the name of their resources; never changed later.
	moments []map[string]Service
	// settled is the newest moment of which all has heard.
	settled int
}

// NewWorld gives an empty one.
func NewWorld() *World { return &World{moments: []map[string]Service{{}}} }

// Now is the newest moment.
func (w *World) Now() int { return len(w.moments) - 1 }

// Names are the resources that exist now, sorted; each has all types.
func (w *World) Names() []string { return slices.Sorted(maps.Keys(w.moments[w.Now()])) }

// ever gives every name that there ever was.
func (w *World) ever() []string {
	all := map[string]bool{}
	for _, m := range w.moments {
		for name := range m {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Set makes a service exist in this form, or not at all for nil, and so makes the next moment.
func (w *World) Set(name string, s *Service) {
	next := maps.Clone(w.moments[w.Now()])
	if s == nil {
		delete(next, name)
	} else {
		next[name] = *s
	}
	w.moments = append(w.moments, next)
}

// Settle says that all of it has been heard of. Until then a client may be
// sent what was true at any moment since the last time.
func (w *World) Settle() { w.settled = w.Now() }

// Content is what a client in a zone should hold of a resource at a moment; ""
// where there is no such resource.
func (w *World) Content(moment int, typ, name, zone string) string {
	s, ok := w.moments[moment][name]
	switch {
	case !ok:
		return ""
	case typ == CDS:
		return "policy=" + s.Policy + " timeout=" + s.Timeout
	case typ == EDS:
		return s.assignment(zone)
	case typ == RDS && s.Policy == "ring-hash":
		return "to=" + name + " hashed"
	}
	return "to=" + name
}

// assignment lists the endpoints that a zone uses: those meant for it when
// every ready one is meant for some zone and any for this one, else all.
// Draining ones stay, and count as ready when no other is.
func (s *Service) assignment(zone string) string {
	hinted, mine, ready := true, false, 0
	for _, e := range s.Endpoints {
		if !e.Draining {
			ready++
			hinted = hinted && e.For != ""
			mine = mine || e.For == zone
		}
	}
	var lines []string
	for _, e := range s.Endpoints {
		if !e.Draining && ready > 0 && hinted && mine && zone != "" && e.For != zone {
			continue
		}
		health := "HEALTHY"
		if e.Draining && ready > 0 {
			health = "DRAINING"
		}
		lines = append(lines, e.Address+" "+e.Zone+" "+health+" "+e.Hostname)
	}
	return Assignment(lines)
}

// Assignment is the content of an assignment whose endpoints are told by these
// lines: "IP:PORT ZONE HEALTH HOSTNAME" each, in any order.
func Assignment(lines []string) string {
	return "[" + strings.Join(slices.Sorted(slices.Values(lines)), ", ") + "]"
}

// moved tells whether a resource was another at any moment after one, up to now.
func (w *World) moved(after int, typ, name, zone string) bool {
	was := w.Content(after, typ, name, zone)
	for m := after + 1; m <= w.Now(); m++ {
		if w.Content(m, typ, name, zone) != was {
			return true
		}
	}
	return false
}

// Policy is how long the control plane waits.
type Policy struct{ ProbeInterval, AckTimeout time.Duration }

// silence is how long a node may give no sign of life.
func (p Policy) silence() time.Duration { return p.ProbeInterval + p.AckTimeout }
