package snapshot

import (
	"maps"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// publication is the next snapshot in the making. It belongs to one call of Publish.
type publication struct {
	store      *Store
	old        *Snapshot
	generation mesh.Generation
	at         time.Time
	drafts     map[mesh.Type]*draft
	changed    []mesh.ResourceName
}

func (p *publication) draft(t mesh.Type) *draft {
	if p.drafts[t] == nil {
		p.drafts[t] = p.old.types[t].draft()
	}
	return p.drafts[t]
}

func (p *publication) put(r mesh.Resource) {
	d, e := p.draft(r.Type), newEntry(r, p.generation, p.at)
	line := change{generation: p.generation, name: e.name, at: p.at, cause: r.Cause}
	if was := d.entry(e.name); was != nil {
		if !e.follow(was, p.store.wanted(r.ShapedBy)) {
			return
		}
		line.from(was)
	}
	d.put(e)
	p.record(d, line, mesh.ResourceName{Type: r.Type, Name: r.Name})
}

func (p *publication) remove(r mesh.Removal) {
	d, name := p.draft(r.Type), mesh.Intern(r.Name)
	was := d.entry(name)
	if was == nil {
		return
	}
	d.remove(name)
	line := change{generation: p.generation, name: name, at: p.at, cause: r.Cause}
	line.from(was)
	p.record(d, line, r.ResourceName)
}

func (p *publication) record(d *draft, line change, name mesh.ResourceName) {
	d.record(line, p.store.logLimit)
	p.changed = append(p.changed, name)
}

// snapshot shares all types that did not change with the one before.
func (p *publication) snapshot() *Snapshot {
	types := make(map[mesh.Type]*collection, len(p.old.types)+len(p.drafts))
	maps.Copy(types, p.old.types)
	for t, d := range p.drafts {
		types[t] = d.collection
	}
	return &Snapshot{generation: p.generation, types: types}
}

// draft is a collection being changed by Publish.
type draft struct {
	*collection
	copied [shards]bool
}

func (c *collection) draft() *draft {
	if c == nil {
		return &draft{collection: &collection{}}
	}
	next := *c
	return &draft{collection: &next}
}

func (d *draft) shard(name mesh.Name) map[mesh.Name]*entry {
	i := shardOf(name)
	if !d.copied[i] {
		d.copied[i] = true
		if d.shards[i] = maps.Clone(d.shards[i]); d.shards[i] == nil {
			d.shards[i] = make(map[mesh.Name]*entry)
		}
	}
	return d.shards[i]
}

func (d *draft) put(e *entry) {
	shard := d.shard(e.name)
	if shard[e.name] == nil {
		d.count++
	}
	shard[e.name] = e
}

func (d *draft) remove(name mesh.Name) {
	delete(d.shard(name), name)
	d.count--
}

func (d *draft) record(c change, limit int) {
	d.log = append(d.log, c)
	if over := len(d.log) - limit; over > 0 {
		d.floor = d.log[over-1].generation
		d.log = d.log[over:]
	}
}
