package balance

// Localities share the load of their priority by weight, as Envoy's "Locality
// weighted load balancing" has it: a locality of which part is out counts for
// less, once the overprovisioning factor does not make up for that.

// weightOf is the locality's weight by what of it is usable. In a ring or table
// an ejected endpoint counts as usable: its keys go to all others, and no
// locality's weight moves the keys of somebody who is not concerned.
func (d *draft) weightOf(cfg Config) float64 {
	part, usable := 1.0, d.usable
	if cfg.Policy.hashes() {
		usable = len(d.members)
	}
	if d.total > 0 {
		part = min(1, cfg.Overprovisioning*float64(usable)/float64(d.total))
	}
	return float64(d.weight) * part
}

// gather makes one draft of several where one ring or table must hold them
// all, and where no locality has a weight.
func gather(cfg Config, drafts []*draft) []*draft {
	if len(drafts) < 2 {
		return drafts
	}
	given := 0.0
	for _, d := range drafts {
		given += d.weightOf(cfg)
	}
	if given > 0 && !cfg.Policy.hashes() {
		return drafts
	}
	all := &draft{id: groupID{drafts[0].id.priority, drafts[0].id.kind, place{}}, listed: drafts[0].listed}
	for _, d := range drafts {
		scale, inside := 1.0, 0.0
		for _, e := range d.members {
			inside += float64(max(e.Weight, 1))
		}
		if given > 0 {
			if scale = d.weightOf(cfg) / inside; scale == 0 {
				continue
			}
		}
		for _, e := range d.members {
			all.members = append(all.members, e)
			all.scales = append(all.scales, scale)
		}
		all.usable += d.usable
	}
	if given == 0 {
		all.scales = nil
	} else {
		all.listed = given
	}
	return []*draft{all}
}

// localityShares gives nil for one locality.
func localityShares(cfg Config, drafts []*draft) []float64 {
	if len(drafts) < 2 {
		return nil
	}
	upTo := make([]float64, len(drafts))
	whole := 0.0
	for i, d := range drafts {
		whole += d.weightOf(cfg)
		upTo[i] = whole
	}
	return upTo
}
