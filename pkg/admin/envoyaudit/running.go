package envoyaudit

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Running is what an Envoy says that it has.
type Running struct {
	// Node is the id in its bootstrap, and Client its name and version, "envoy 1.40.0".
	Node   mesh.NodeID
	Client string

	// delta: a version is a resource's own, and not its type's.
	delta bool
	// cds and lds: it takes clusters and listeners from a control plane.
	cds, lds                    bool
	clusters, listeners, routes map[string]*held
	// static are the bootstrap's clusters and listeners.
	static struct{ clusters, listeners []json.RawMessage }
	// hosts: cluster → what its load balancer knows; assignments: assignment →
	// its form in each cluster that uses it.
	hosts       map[string][]host
	assignments map[string][]json.RawMessage
}

// held is one resource in Envoy. Bodies are messages with "@type"; nil where there is none.
type held struct {
	active, warming               json.RawMessage
	activeVersion, warmingVersion string
	refused                       *refusal
}

// refusal is envoy.admin.v3.UpdateFailureState.
type refusal struct {
	Details string          `json:"details"`
	Config  json.RawMessage `json:"failed_configuration"`
}

// The parts of envoy.admin.v3 that count here. They are read as plain JSON, piece
// by piece: what this build does not know in one place must not hide the rest.
type (
	bootstrapDump struct {
		Bootstrap struct {
			Node struct {
				ID        string `json:"id"`
				UserAgent string `json:"user_agent_name"`
				Build     struct {
					Version struct {
						Major int `json:"major_number"`
						Minor int `json:"minor_number"`
						Patch int `json:"patch"`
					} `json:"version"`
				} `json:"user_agent_build_version"`
			} `json:"node"`
			Dynamic struct {
				CDS *configSource `json:"cds_config"`
				LDS *configSource `json:"lds_config"`
				ADS *apiSource    `json:"ads_config"`
			} `json:"dynamic_resources"`
		} `json:"bootstrap"`
	}
	configSource struct {
		ADS *struct{}  `json:"ads"`
		API *apiSource `json:"api_config_source"`
	}
	apiSource struct {
		Kind string `json:"api_type"`
	}
	// dynamicState is a DynamicCluster, a DynamicRouteConfig, or a DynamicListenerState.
	dynamicState struct {
		Version  string          `json:"version_info"`
		Cluster  json.RawMessage `json:"cluster"`
		Route    json.RawMessage `json:"route_config"`
		Listener json.RawMessage `json:"listener"`
		Refused  *refusal        `json:"error_state"`
	}
	clustersDump struct {
		Static  []dynamicState `json:"static_clusters"`
		Active  []dynamicState `json:"dynamic_active_clusters"`
		Warming []dynamicState `json:"dynamic_warming_clusters"`
	}
	listenersDump struct {
		Static  []dynamicState `json:"static_listeners"`
		Dynamic []struct {
			Name    string        `json:"name"`
			Active  *dynamicState `json:"active_state"`
			Warming *dynamicState `json:"warming_state"`
			Refused *refusal      `json:"error_state"`
		} `json:"dynamic_listeners"`
	}
	routesDump struct {
		Dynamic []dynamicState `json:"dynamic_route_configs"`
	}
	endpointsDump struct {
		Static  []endpointConfig `json:"static_endpoint_configs"`
		Dynamic []endpointConfig `json:"dynamic_endpoint_configs"`
	}
	endpointConfig struct {
		Assignment json.RawMessage `json:"endpoint_config"`
	}
)

// Read reads the answers to /config_dump?include_eds and /clusters?format=json.
// The error is for answers that are none: of something else than an Envoy, or cut short.
func Read(configDump, clusters []byte) (Running, error) {
	r := Running{
		clusters: map[string]*held{}, listeners: map[string]*held{}, routes: map[string]*held{},
		hosts: map[string][]host{}, assignments: map[string][]json.RawMessage{},
	}
	var dump struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(configDump, &dump); err != nil {
		return r, fmt.Errorf("config_dump: %w", err)
	}
	seen := map[string]bool{}
	for _, config := range dump.Configs {
		kind := typeOf(config)
		seen[kind] = true
		if err := r.take(kind, config); err != nil {
			return r, fmt.Errorf("config_dump: %s: %w", kind, err)
		}
	}
	for _, kind := range []string{"BootstrapConfigDump", "ClustersConfigDump", "ListenersConfigDump", "EndpointsConfigDump"} {
		if !seen["type.googleapis.com/envoy.admin.v3."+kind] {
			return r, fmt.Errorf("config_dump: no %s: not what an Envoy answers to /config_dump?include_eds", kind)
		}
	}
	if err := r.takeHosts(clusters); err != nil {
		return r, fmt.Errorf("clusters: %w", err)
	}
	return r, nil
}

func (r *Running) take(kind string, config json.RawMessage) error {
	switch kind {
	case "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump":
		return r.takeBootstrap(config)
	case "type.googleapis.com/envoy.admin.v3.ClustersConfigDump":
		return r.takeClusters(config)
	case "type.googleapis.com/envoy.admin.v3.ListenersConfigDump":
		return r.takeListeners(config)
	case "type.googleapis.com/envoy.admin.v3.RoutesConfigDump":
		var d routesDump
		err := json.Unmarshal(config, &d)
		for _, s := range d.Dynamic {
			h := at(r.routes, nameOf(s.Route))
			h.active, h.activeVersion, h.refused = s.Route, s.Version, s.Refused
		}
		return err
	case "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump":
		var d endpointsDump
		err := json.Unmarshal(config, &d)
		for _, c := range append(d.Static, d.Dynamic...) {
			name := nameOf(c.Assignment)
			r.assignments[name] = append(r.assignments[name], c.Assignment)
		}
		return err
	}
	return nil
}

func (r *Running) takeBootstrap(config json.RawMessage) error {
	var d bootstrapDump
	if err := json.Unmarshal(config, &d); err != nil {
		return err
	}
	node, dynamic := d.Bootstrap.Node, d.Bootstrap.Dynamic
	if node.ID == "" {
		return errors.New("the node has no id")
	}
	v := node.Build.Version
	r.Node, r.Client = mesh.NodeID(node.ID), fmt.Sprintf("%s %d.%d.%d", node.UserAgent, v.Major, v.Minor, v.Patch)
	r.cds, r.lds = dynamic.CDS.remote(), dynamic.LDS.remote()
	source := dynamic.ADS
	if source == nil && dynamic.CDS != nil {
		source = dynamic.CDS.API
	}
	r.delta = source != nil && (source.Kind == "DELTA_GRPC" || source.Kind == "AGGREGATED_DELTA_GRPC")
	return nil
}

// remote tells whether it is a control plane, and no file.
func (s *configSource) remote() bool { return s != nil && (s.ADS != nil || s.API != nil) }

func (r *Running) takeClusters(config json.RawMessage) error {
	var d clustersDump
	if err := json.Unmarshal(config, &d); err != nil {
		return err
	}
	for _, s := range d.Static {
		r.static.clusters = append(r.static.clusters, s.Cluster)
	}
	for _, s := range d.Active {
		h := at(r.clusters, nameOf(s.Cluster))
		h.active, h.activeVersion, h.refused = s.Cluster, s.Version, s.Refused
	}
	for _, s := range d.Warming {
		h := at(r.clusters, nameOf(s.Cluster))
		h.warming, h.warmingVersion = s.Cluster, s.Version
		if s.Refused != nil {
			h.refused = s.Refused
		}
	}
	return nil
}

func (r *Running) takeListeners(config json.RawMessage) error {
	var d listenersDump
	if err := json.Unmarshal(config, &d); err != nil {
		return err
	}
	for _, s := range d.Static {
		r.static.listeners = append(r.static.listeners, s.Listener)
	}
	for _, l := range d.Dynamic {
		if l.Name == "" && l.Refused != nil { // a refused one stands there once more, so
			l.Name = nameOf(l.Refused.Config)
		}
		h := at(r.listeners, l.Name)
		h.refused = l.Refused
		if l.Active != nil {
			h.active, h.activeVersion = l.Active.Listener, l.Active.Version
		}
		if l.Warming != nil {
			h.warming, h.warmingVersion = l.Warming.Listener, l.Warming.Version
		}
	}
	return nil
}

func at(m map[string]*held, name string) *held {
	if m[name] == nil {
		m[name] = &held{}
	}
	return m[name]
}

func typeOf(message json.RawMessage) string {
	var m struct {
		Type string `json:"@type"`
	}
	_ = json.Unmarshal(message, &m) // "" is a type that nobody knows
	return m.Type
}

// nameOf gives the name of a resource: an assignment's is cluster_name.
func nameOf(message json.RawMessage) string {
	var m struct {
		Name        string `json:"name"`
		ClusterName string `json:"cluster_name"`
	}
	_ = json.Unmarshal(message, &m) // "" differs from all that is wanted
	if m.Name == "" {
		return m.ClusterName
	}
	return m.Name
}
