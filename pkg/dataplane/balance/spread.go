package balance

import (
	"cmp"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// kind is what a group's entries have in common beside their priority.
type kind uint8

const (
	healthy kind = iota
	degraded
	// doubted and sick are used in need alone.
	doubted
	sick
	kinds
)

// kindOf gives false for an entry that is never picked.
func kindOf(e *Entry) (kind, bool) {
	switch {
	case e.Out == Gone:
		return 0, false
	case e.Health == mesh.Draining:
		return 0, false
	case e.Health == mesh.Unhealthy:
		return sick, true
	case e.Out == Doubted:
		return doubted, true
	case e.Health == mesh.Degraded:
		return degraded, true
	}
	return healthy, true
}

// reserved gives the kind in whose ring or table the places of an entry that
// is out are kept: so an ejection moves nobody else's keys, and costs no new table.
func reserved(cfg Config, e *Entry) (kind, bool) {
	if !cfg.Policy.hashes() || e.Out == In {
		return 0, false
	}
	switch e.Health {
	case mesh.Healthy:
		return healthy, true
	case mesh.Degraded:
		return degraded, true
	case mesh.Draining, mesh.Unhealthy:
	}
	return 0, false
}

// place is a locality; empty where localities do not matter.
type place struct{ region, zone, subZone string }

// groupID names a group from one picker to the next.
type groupID struct {
	priority uint32
	kind     kind
	place    place
}

// draft is a group in the making.
type draft struct {
	id      groupID
	members []*Entry
	// usable is how many of the members can be picked.
	usable int
	// weight is the locality's, total how many entries it lists of any health.
	weight uint32
	total  int
	// scales are what the members' weights are multiplied with; nil for 1.
	scales []float64
	// listed is the weight of everything listed in the priority, out or not: it sizes a ring.
	listed float64
}

// level is one priority.
type level struct {
	priority uint32
	total    int
	count    [kinds]int
	weight   float64
	drafts   [kinds][]*draft
	// totals are how many entries each locality lists.
	totals map[place]int
}

// census is what a list of entries holds.
type census struct{ levels []*level }

// survey takes the entries apart by priority, kind and locality.
func survey(cfg Config, entries []*Entry) *census {
	c := &census{}
	var at *level
	var last *draft
	for _, e := range entries {
		if at == nil || at.priority != e.Priority {
			at = c.level(e.Priority)
		}
		at.weight += float64(max(e.Weight, 1))
		if e.Health != mesh.Draining {
			at.total++
		}
		where := place{}
		if cfg.LocalityWeighted {
			where = place{e.Region, e.Zone, e.SubZone}
			if e.Health != mesh.Draining {
				at.totals[where]++
			}
		}
		join := func(k kind) {
			id := groupID{e.Priority, k, where}
			if last == nil || last.id != id {
				last = at.draft(id, e.LocalityWeight, len(entries))
			}
			last.members = append(last.members, e)
		}
		if k, ok := kindOf(e); ok {
			at.count[k]++
			join(k)
			last.usable++
		}
		if k, ok := reserved(cfg, e); ok {
			join(k)
		}
	}
	c.finish()
	return c
}

// finish sorts the levels, and tells their drafts what the whole came to.
func (c *census) finish() {
	slices.SortFunc(c.levels, func(a, b *level) int { return cmp.Compare(a.priority, b.priority) })
	for _, l := range c.levels {
		for _, ds := range l.drafts {
			for _, d := range ds {
				d.total, d.listed = l.totals[d.id.place], l.weight
			}
		}
	}
}

func (c *census) level(priority uint32) *level {
	for _, l := range c.levels {
		if l.priority == priority {
			return l
		}
	}
	l := &level{priority: priority, totals: map[place]int{}}
	c.levels = append(c.levels, l)
	return l
}

func (l *level) draft(id groupID, weight uint32, room int) *draft {
	for _, d := range l.drafts[id.kind] {
		if d.id == id {
			return d
		}
	}
	d := &draft{id: id, weight: weight}
	if l.drafts[id.kind] == nil && id.kind == healthy {
		d.members = make([]*Entry, 0, room)
	}
	l.drafts[id.kind] = append(l.drafts[id.kind], d)
	return d
}

// share is a bucket in the making, with its part of the load.
type share struct {
	drafts []*draft
	load   float64
}

// spread shares the load among what is usable, and gives it in the order of fallback.
func (c *census) spread(cfg Config) []share {
	loads := distribute(cfg, c.levels)
	var shares []share
	add := func(load float64, drafts []*draft) {
		drafts = slices.DeleteFunc(slices.Clone(drafts), func(d *draft) bool { return d.usable == 0 })
		if len(drafts) > 0 {
			shares = append(shares, share{gather(cfg, drafts), load})
		}
	}
	for _, k := range []kind{healthy, degraded} {
		for i, l := range c.levels {
			switch {
			case !loads[i].panic:
				add(loads[i].by[k], l.drafts[k])
			case k == healthy:
				// In panic all of the priority are alike, and so are its localities.
				add(loads[i].by[healthy]+loads[i].by[degraded], merged(l))
			}
		}
	}
	if len(shares) > 0 {
		return shares
	}
	for _, l := range c.levels {
		add(float64(l.count[doubted]), l.drafts[doubted])
	}
	return shares
}

// merged is all of a priority as one draft.
func merged(l *level) []*draft {
	all := &draft{id: groupID{l.priority, kinds, place{}}, listed: l.weight}
	for k, ds := range l.drafts {
		for _, d := range ds {
			for _, e := range d.members {
				// A reserved place is in its own kind's draft, too.
				if own, ok := kindOf(e); ok && own == kind(k) {
					all.members = append(all.members, e)
				}
			}
		}
	}
	all.usable = len(all.members)
	return []*draft{all}
}

// loadOf is what a priority gets.
type loadOf struct {
	by    [degraded + 1]float64
	panic bool
}

// distribute is Envoy's rule for priorities. Loads are parts of 1.
func distribute(cfg Config, levels []*level) []loadOf {
	loads := make([]loadOf, len(levels))
	sum := 0.0
	for _, l := range levels {
		sum += l.availability(healthy, cfg) + l.availability(degraded, cfg)
	}
	if sum == 0 {
		return inTotalPanic(cfg, levels, loads)
	}
	whole := min(sum, 1)
	left := 1.0
	for _, k := range []kind{healthy, degraded} {
		for i, l := range levels {
			take := min(left, l.availability(k, cfg)/whole)
			loads[i].by[k] = take
			left -= take
		}
	}
	if whole < 1-rounding {
		for i, l := range levels {
			loads[i].panic = l.total > 0 && float64(l.count[healthy]+l.count[degraded])/float64(l.total) < cfg.Panic
		}
	}
	return loads
}

const rounding = 1e-9

// inTotalPanic: nothing is usable anywhere. With panic allowed, each priority
// gets its part by the number of its endpoints.
func inTotalPanic(cfg Config, levels []*level, loads []loadOf) []loadOf {
	if cfg.Panic <= 0 {
		return loads
	}
	total := 0
	for _, l := range levels {
		total += l.total
	}
	for i, l := range levels {
		loads[i].panic = true
		loads[i].by[healthy] = float64(l.total) / float64(max(total, 1))
	}
	return loads
}

// availability is the part of the whole load that the kind can take.
func (l *level) availability(k kind, cfg Config) float64 {
	if l.total == 0 {
		return 0
	}
	return min(1, cfg.Overprovisioning*float64(l.count[k])/float64(l.total))
}
