package envoyaudit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// host is an endpoint: as an assignment has it, or as a load balancer knows it.
type host struct {
	place
	hostname string
	// health is that of EDS: HEALTHY, DEGRADED, DRAINING or UNHEALTHY.
	health string
	weight uint32
	// leaving: EDS dropped it, and it stays until its health check fails.
	leaving bool
	// metadata may be nil.
	metadata *corev3.Metadata
}

// place tells endpoints of one cluster apart.
type place struct {
	address  string
	priority uint32
	locality string
}

// clustersJSON is what counts here of envoy.admin.v3.Clusters.
type clustersJSON struct {
	Statuses []struct {
		Name  string `json:"name"`
		Hosts []struct {
			Address  addressJSON `json:"address"`
			Hostname string      `json:"hostname"`
			Weight   uint32      `json:"weight"`
			Priority uint32      `json:"priority"`
			Locality struct {
				Region  string `json:"region"`
				Zone    string `json:"zone"`
				SubZone string `json:"sub_zone"`
			} `json:"locality"`
			Health struct {
				EDS     string `json:"eds_health_status"`
				Leaving bool   `json:"pending_dynamic_removal"`
			} `json:"health_status"`
		} `json:"host_statuses"`
	} `json:"cluster_statuses"`
}

type addressJSON struct {
	Socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
	Pipe struct {
		Path string `json:"path"`
	} `json:"pipe"`
	Internal struct {
		Listener string `json:"server_listener_name"`
		Endpoint string `json:"endpoint_id"`
	} `json:"envoy_internal_address"`
}

func (a addressJSON) String() string {
	switch {
	case a.Socket.Address != "":
		return hostPort(a.Socket.Address, a.Socket.Port)
	case a.Pipe.Path != "":
		return a.Pipe.Path
	}
	return internal(a.Internal.Listener, a.Internal.Endpoint)
}

// hostPort gives IP:PORT, an IPv6 address in brackets.
func hostPort(ip string, port int) string {
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	return ip + ":" + strconv.Itoa(port)
}

func internal(listener, endpoint string) string { return "envoy://" + listener + "/" + endpoint }

func (r *Running) takeHosts(text []byte) error {
	var all clustersJSON
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	if all.Statuses == nil {
		return errors.New("no cluster_statuses: not what an Envoy answers to /clusters?format=json")
	}
	for _, s := range all.Statuses {
		for _, h := range s.Hosts {
			l := h.Locality
			r.hosts[s.Name] = append(r.hosts[s.Name], host{
				place:    place{h.Address.String(), h.Priority, localityText(l.Region, l.Zone, l.SubZone)},
				hostname: h.Hostname, health: cmp.Or(h.Health.EDS, "HEALTHY"), weight: h.Weight, leaving: h.Health.Leaving,
			})
		}
	}
	return nil
}

func localityText(region, zone, subZone string) string {
	return fmt.Sprintf("%s/%s/%s", region, zone, subZone)
}

func locality(l *corev3.Locality) string {
	return localityText(l.GetRegion(), l.GetZone(), l.GetSubZone())
}

// hostsOf gives the endpoints of an assignment.
func hostsOf(a *endpointv3.ClusterLoadAssignment) []host {
	var out []host
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			weight := uint32(1)
			if w := e.GetLoadBalancingWeight(); w != nil {
				weight = w.GetValue()
			}
			out = append(out, host{
				place:    place{address(e.GetEndpoint().GetAddress()), l.GetPriority(), locality(l.GetLocality())},
				hostname: e.GetEndpoint().GetHostname(), health: health(e.GetHealthStatus()), weight: weight, metadata: e.GetMetadata(),
			})
		}
	}
	return out
}

func address(a *corev3.Address) string {
	switch kind := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return hostPort(kind.SocketAddress.GetAddress(), int(kind.SocketAddress.GetPortValue()))
	case *corev3.Address_Pipe:
		return kind.Pipe.GetPath()
	case *corev3.Address_EnvoyInternalAddress:
		return internal(kind.EnvoyInternalAddress.GetServerListenerName(), kind.EnvoyInternalAddress.GetEndpointId())
	}
	return ""
}

// health gives what Envoy makes of a status: unknown is healthy, a timeout unhealthy.
func health(s corev3.HealthStatus) string {
	if s == corev3.HealthStatus_UNKNOWN {
		s = corev3.HealthStatus_HEALTHY
	}
	if s == corev3.HealthStatus_TIMEOUT {
		s = corev3.HealthStatus_UNHEALTHY
	}
	return s.String()
}

// differs gives what is different in one endpoint.
func (h host) differs(has host) []Field {
	var out []Field
	add := func(path, want, has string) {
		if want != has {
			out = append(out, Field{Path: path, Want: want, Has: has})
		}
	}
	add("priority", strconv.Itoa(int(h.priority)), strconv.Itoa(int(has.priority)))
	add("locality", h.locality, has.locality)
	add("hostname", h.hostname, has.hostname)
	add("health", h.health, has.health)
	add("weight", strconv.Itoa(int(h.weight)), strconv.Itoa(int(has.weight)))
	return out
}

// metadataDiffers compares what only an assignment tells.
func (h host) metadataDiffers(has host) []Field {
	want, other := h.metadata, has.metadata
	if proto.Equal(want, other) {
		return nil
	}
	if want == nil {
		want = &corev3.Metadata{}
	}
	if other == nil {
		other = &corev3.Metadata{}
	}
	found := fields(want, other)
	for i := range found {
		found[i].Path = "metadata." + found[i].Path
	}
	return found
}
