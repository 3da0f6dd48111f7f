package discovery

import (
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	metadataName = "freshmesh.dev"
	confirmedKey = "confirmed_at"
)

// Restore puts resources of an earlier process in force, before any stream is
// open. It gives the number of clusters in force and what was not usable.
func (c *core) Restore(now time.Time, resources []*discoveryv3.Resource) (loaded int, problems []error) {
	for _, res := range resources {
		if t := mesh.Type(res.GetResource().GetTypeUrl()); t == mesh.TypeCluster {
			c.want(now, res.GetName())
		}
	}
	for _, res := range slices.Backward(resources) { // the file has a cluster before its endpoints; here they come first
		if err := c.restore(now, res); err != nil {
			problems = append(problems, fmt.Errorf("resource %s: %w", res.GetName(), err))
		}
	}
	for name, e := range c.entries {
		if len(e.users) == 0 {
			delete(c.entries, name)
		}
	}
	for name, s := range c.subs {
		if s.inForce != nil {
			loaded++
		} else if !c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: name}].known {
			c.drop(s)
		}
	}
	c.out.save = false
	return loaded, problems
}

func (c *core) restore(now time.Time, res *discoveryv3.Resource) error {
	t := mesh.Type(res.GetResource().GetTypeUrl())
	content, err := decode(t, res.GetName(), res.GetResource())
	if err != nil {
		return err
	}
	name := mesh.ResourceName{Type: t, Name: res.GetName()}
	e := c.entries[name]
	if e == nil {
		if t != mesh.TypeEndpoint {
			return nil
		}
		// Named by a cluster's service_name; the cluster, restored later, becomes its user.
		e = &entry{name: name, users: map[string]*sub{}, wait: c.answer, unoffered: true}
		c.entries[name] = e
	}
	c.seq++
	e.held = held{known: true, content: content, resource: withoutStamp(res), seq: c.seq, fromDisk: true}
	e.confirmedAt = stampOf(res)
	if err := c.bringAllInForce(now, e); err != nil {
		e.held = held{}
		_ = c.bringAllInForce(now, e)
		return err
	}
	return nil
}

// Snapshot is everything in force, with when it was last vouched for, clusters before their endpoints.
func (c *core) Snapshot() []*discoveryv3.Resource {
	var list []*discoveryv3.Resource
	seen := map[*discoveryv3.Resource]bool{}
	for _, name := range sortedKeys(c.subs) {
		s := c.subs[name]
		for _, r := range s.kept {
			if !seen[r] {
				seen[r] = true
				list = append(list, stamped(r, s.inForce.ConfirmedAt))
			}
		}
	}
	return list
}

// stamped is the resource with the time at which it was vouched for.
func stamped(r *discoveryv3.Resource, at time.Time) *discoveryv3.Resource {
	return &discoveryv3.Resource{
		Name: r.GetName(), Version: r.GetVersion(), Resource: r.GetResource(),
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataName: {
			Fields: map[string]*structpb.Value{confirmedKey: structpb.NewStringValue(at.UTC().Format(time.RFC3339Nano))},
		}}},
	}
}

func withoutStamp(r *discoveryv3.Resource) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: r.GetName(), Version: r.GetVersion(), Resource: r.GetResource()}
}

// stampOf is zero where there is no readable stamp.
func stampOf(r *discoveryv3.Resource) time.Time {
	v := r.GetMetadata().GetFilterMetadata()[metadataName].GetFields()[confirmedKey].GetStringValue()
	at, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return time.Time{}
	}
	return at
}
