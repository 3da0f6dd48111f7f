package envoyaudit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// endpoints compares those of a cluster with the assignment called name.
func (c *comparison) endpoints(cluster, name string) {
	d := Difference{Type: mesh.TypeEndpoint.Short(), Name: cluster}
	want := &endpointv3.ClusterLoadAssignment{}
	if w := c.want[mesh.TypeEndpoint][name]; w != nil {
		d.Want = w.Version
		if w.err != nil {
			d.Kind, d.Detail = Unreadable, w.err.Error()
			c.add(d)
			return
		}
		want = w.message.(*endpointv3.ClusterLoadAssignment) //nolint:forcetypeassert // decode made it of this type
	}
	wanted := hostsOf(want)
	c.report.Compared.Endpoints += len(wanted)
	pairs, missing, extra := match(wanted, c.has.hosts[cluster])
	for _, h := range missing {
		c.addEndpoint(d, Missing, h.address, "", nil)
	}
	for _, h := range extra {
		detail := ""
		if h.leaving {
			detail = "it stays until its health check fails"
		}
		c.addEndpoint(d, Extra, h.address, detail, nil)
	}
	for _, p := range pairs {
		if found := p[0].differs(p[1]); len(found) > 0 {
			c.addEndpoint(d, Older, p[0].address, "", found)
		} else if p[1].leaving {
			c.addEndpoint(d, Older, p[0].address, "it is about to be removed", nil)
		}
	}
	c.assignments(d, want, name)
}

func (c *comparison) addEndpoint(d Difference, k Kind, address, detail string, f []Field) {
	d.Kind, d.Endpoint, d.Detail, d.Fields = k, address, detail, f
	c.add(d)
}

// assignments compares what only /config_dump tells, in each form of the
// assignment: clusters that share it have one each, and all have the same name.
func (c *comparison) assignments(d Difference, want *endpointv3.ClusterLoadAssignment, name string) {
	wanted := hostsOf(want)
	seen := map[string]bool{}
	for _, body := range c.has.assignments[name] {
		m, err := decode(body)
		has, ok := m.(*endpointv3.ClusterLoadAssignment)
		if err != nil || !ok {
			d.Kind, d.Detail = Unreadable, fmt.Sprintf("its assignment in Envoy: %v", err)
			c.add(d)
			return
		}
		pairs, _, _ := match(wanted, hostsOf(has))
		for _, p := range pairs {
			if found := p[0].metadataDiffers(p[1]); len(found) > 0 && !seen[p[0].address] {
				seen[p[0].address] = true
				c.addEndpoint(d, Older, p[0].address, "", found)
			}
		}
		if found := localityWeights(want, has); len(found) > 0 && !seen[""] {
			seen[""] = true
			d.Kind, d.Fields = Older, found
			c.add(d)
		}
	}
}

// match pairs endpoints by place, and what is left by address.
func match(want, has []host) (pairs [][2]host, missing, extra []host) {
	byPlace, byAddress := map[place][]int{}, map[string][]int{}
	for i, h := range has {
		byPlace[h.place] = append(byPlace[h.place], i)
	}
	taken := make([]bool, len(has))
	var left []host
	for _, h := range want {
		if at := byPlace[h.place]; len(at) > 0 {
			pairs, taken[at[0]], byPlace[h.place] = append(pairs, [2]host{h, has[at[0]]}), true, at[1:]
		} else {
			left = append(left, h)
		}
	}
	for i, h := range has {
		if !taken[i] {
			byAddress[h.address] = append(byAddress[h.address], i)
		}
	}
	for _, h := range left {
		if at := byAddress[h.address]; len(at) > 0 {
			pairs, taken[at[0]], byAddress[h.address] = append(pairs, [2]host{h, has[at[0]]}), true, at[1:]
		} else {
			missing = append(missing, h)
		}
	}
	for i, h := range has {
		if !taken[i] {
			extra = append(extra, h)
		}
	}
	return pairs, missing, extra
}

// localityWeights compares the weights of the localities that both have.
func localityWeights(want, has *endpointv3.ClusterLoadAssignment) []Field {
	type key struct {
		priority uint32
		locality string
	}
	weights := func(a *endpointv3.ClusterLoadAssignment) map[key]uint32 {
		out := map[key]uint32{}
		for _, l := range a.GetEndpoints() {
			out[key{l.GetPriority(), locality(l.GetLocality())}] = l.GetLoadBalancingWeight().GetValue()
		}
		return out
	}
	var out []Field
	other := weights(has)
	for k, w := range weights(want) {
		if h, ok := other[k]; ok && h != w {
			out = append(out, Field{
				Path: fmt.Sprintf("weight of locality %s, priority %d", k.locality, k.priority),
				Want: strconv.Itoa(int(w)), Has: strconv.Itoa(int(h)),
			})
		}
	}
	slices.SortFunc(out, func(a, b Field) int { return cmp.Compare(a.Path, b.Path) })
	return out
}
