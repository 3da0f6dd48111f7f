package envoyaudit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/freshmesh/freshmesh/pkg/envoytypes" // what may stand in an Any
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// Resource is one resource of the control plane's GET /resources.
type Resource struct {
	Name    string       `json:"name"`
	Version mesh.Version `json:"version"`
	// Body is the message as protojson has it, without "@type"; nil where the server could
	// not decode it, for the reason in Undecoded.
	Body      json.RawMessage `json:"body"`
	Undecoded string          `json:"undecoded"`
}

// Wanted is what the control plane says that a node should have, of the four generated types.
type Wanted map[mesh.Type][]Resource

// Compare gives every difference.
func Compare(want Wanted, has Running) Report {
	c := comparison{want: map[mesh.Type]map[string]*wanted{}, has: has}
	for t, resources := range want {
		c.want[t] = make(map[string]*wanted, len(resources))
		for _, r := range resources {
			c.want[t][r.Name] = &wanted{Resource: r}
			c.want[t][r.Name].decode(t)
		}
	}
	c.clusters()
	c.listeners()
	c.routes()
	c.report.Node, c.report.Client, c.report.InEffect = has.Node, has.Client, len(c.report.Differences) == 0
	c.report.Differences = append([]Difference{}, c.report.Differences...)
	slices.SortStableFunc(c.report.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return c.report
}

// comparison is one call of Compare.
type comparison struct {
	want   map[mesh.Type]map[string]*wanted
	has    Running
	report Report
}

// wanted is a resource, and its message or why there is none.
type wanted struct {
	Resource
	message proto.Message
	err     error
}

func (w *wanted) decode(t mesh.Type) {
	if w.Body == nil {
		w.err = fmt.Errorf("the control plane cannot show it: %s", w.Undecoded)
		return
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(string(t))
	if err != nil {
		w.err = err
		return
	}
	w.message = kind.New().Interface()
	w.err = protojson.Unmarshal(w.Body, w.message)
}

// decode gives the message of JSON with "@type".
func decode(body json.RawMessage) (proto.Message, error) {
	var packed anypb.Any
	if err := protojson.Unmarshal(body, &packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}

func (c *comparison) add(d Difference) { c.report.Differences = append(c.report.Differences, d) }

func (c *comparison) clusters() {
	if c.has.cds {
		c.report.Compared.Clusters = len(c.want[mesh.TypeCluster])
		for _, name := range union(c.want[mesh.TypeCluster], c.has.clusters) {
			c.resource(mesh.TypeCluster, name, c.want[mesh.TypeCluster][name], c.has.clusters[name])
		}
	}
	for _, body := range c.has.static.clusters {
		c.cluster(body)
	}
	for _, name := range sortedKeys(c.has.clusters) {
		if body := c.has.clusters[name].active; body != nil {
			c.cluster(body)
		}
	}
}

// cluster compares the endpoints of a cluster in use.
func (c *comparison) cluster(body json.RawMessage) {
	m, err := decode(body)
	cluster, ok := m.(*clusterv3.Cluster)
	if err != nil || !ok {
		return // a dynamic one is named by resource, a static one is the bootstrap's
	}
	if eds := cluster.GetEdsClusterConfig(); cluster.GetType() == clusterv3.Cluster_EDS && eds.GetEdsConfig().GetAds() != nil {
		c.endpoints(cluster.GetName(), cmp.Or(eds.GetServiceName(), cluster.GetName()))
	}
}

func (c *comparison) listeners() {
	if !c.has.lds {
		return
	}
	c.report.Compared.Listeners = len(c.want[mesh.TypeListener])
	for _, name := range union(c.want[mesh.TypeListener], c.has.listeners) {
		h := c.has.listeners[name]
		if h != nil && h.active == nil && h.warming == nil && h.refused == nil {
			h = nil // it drains
		}
		c.resource(mesh.TypeListener, name, c.want[mesh.TypeListener][name], h)
	}
}

// routes looks at what the listeners need, and at what Envoy has.
func (c *comparison) routes() {
	needed, foreign := map[string]bool{}, map[string]bool{}
	if c.has.lds {
		for _, w := range c.want[mesh.TypeListener] {
			if w.err == nil {
				references(w.message.ProtoReflect(), needed, foreign)
			}
		}
	}
	bodies := c.has.static.listeners
	for _, h := range c.has.listeners {
		bodies = append(bodies, h.active, h.warming)
	}
	for _, body := range bodies {
		if m, err := decode(body); err == nil {
			references(m.ProtoReflect(), map[string]bool{}, foreign)
		}
	}
	for _, name := range union(c.want[mesh.TypeRoute], c.has.routes) {
		w, h := c.want[mesh.TypeRoute][name], c.has.routes[name]
		if h == nil && !needed[name] || w == nil && foreign[name] {
			continue
		}
		if w != nil {
			c.report.Compared.Routes++
		}
		c.resource(mesh.TypeRoute, name, w, h)
	}
}

// resource compares one resource; w or h is nil where one side has none.
func (c *comparison) resource(t mesh.Type, name string, w *wanted, h *held) {
	d := Difference{Type: t.Short(), Name: name}
	if w != nil {
		d.Want = w.Version
	}
	switch {
	case h == nil && w == nil:
	case h == nil || h.active == nil && h.warming == nil:
		if w != nil { // a refusal of what is no longer wanted harms nobody
			c.lacking(d, h)
		}
	case w == nil:
		d.Kind, d.Has = Extra, c.version(cmp.Or(h.activeVersion, h.warmingVersion))
		c.add(d)
	case h.active == nil:
		d.Kind, d.Has, d.Detail = Warming, c.version(h.warmingVersion), "it is not in use yet"
		d.Fields, _ = c.content(w, h.warming, h.warmingVersion)
		c.add(d)
	default:
		c.active(d, w, h)
	}
}

// lacking is a resource of which Envoy has nothing but, perhaps, a refusal.
func (c *comparison) lacking(d Difference, h *held) {
	d.Kind = Missing
	if h != nil && h.refused != nil {
		d.Kind, d.Detail = Refused, h.refused.Details
	}
	c.add(d)
}

// active is a resource that Envoy uses, in whatever form.
func (c *comparison) active(d Difference, w *wanted, h *held) {
	found, err := c.content(w, h.active, h.activeVersion)
	d.Has, d.Fields = c.version(h.activeVersion), found
	switch {
	case err != nil:
		d.Kind, d.Detail = Unreadable, err.Error()
	case len(found) == 0:
		return
	case h.refused != nil:
		d.Kind, d.Detail = Refused, h.refused.Details
	case h.warming != nil:
		d.Kind, d.Detail = Warming, "another form of it is in use until then"
	case d.Has == string(d.Want):
		d.Kind = Altered
	default:
		d.Kind = Older
	}
	c.add(d)
}

// version is "" in state-of-the-world, where it is the type's.
func (c *comparison) version(v string) string {
	if !c.has.delta {
		return ""
	}
	return v
}

// content gives the fields that differ. What cannot be decoded is equal when its version is.
func (c *comparison) content(w *wanted, body json.RawMessage, version string) ([]Field, error) {
	m, err := decode(body)
	if err = errors.Join(w.err, err); err != nil {
		if c.has.delta && version == string(w.Version) {
			return nil, nil
		}
		return nil, err
	}
	return fields(w.message, m), nil
}

// union gives the keys of both, sorted.
func union[A, B any](a map[string]A, b map[string]B) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
