package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// clusters serves /clusters: Envoy's lines "NAME::ADDRESS::FACT::VALUE" and its
// JSON, with ewma_ms, ejected_until and reason beside what Envoy has.
func (c Config) clusters(w http.ResponseWriter, r *http.Request) {
	all := c.Endpoints.Status()
	if r.FormValue("format") == "json" {
		out := clustersJSON{ClusterStatuses: []clusterJSON{}}
		for _, s := range all {
			out.ClusterStatuses = append(out.ClusterStatuses, clusterStatus(s))
		}
		writeJSON(w, out)
		return
	}
	for _, s := range all {
		writeCluster(w, s)
	}
}

func writeCluster(w http.ResponseWriter, s endpoints.Status) {
	cfg := s.Config
	line := func(fact string, v any) { fmt.Fprintf(w, "%s::%s::%v\n", cfg.Name, fact, v) }
	line("default_priority::max_connections", cfg.MaxConnections)
	line("default_priority::max_pending_requests", cfg.MaxPending)
	line("default_priority::max_requests", cfg.MaxRequests)
	line("default_priority::max_retries", cfg.MaxRetries)
	line("added_via_api", true)
	line("eds_service_name", cfg.ServiceName)
	line("lb_policy", cfg.Policy)
	line("http2", cfg.HTTP2)
	for _, e := range s.Endpoints {
		host := func(fact string, v any) { fmt.Fprintf(w, "%s::%s::%s::%v\n", cfg.Name, e.Address, fact, v) }
		host("cx_connect_fail", e.Total.ConnectFailed)
		host("rq_active", e.InFlight)
		host("rq_error", e.Total.Failed)
		host("rq_success", e.Total.Succeeded)
		host("rq_total", e.Total.Issued)
		host("hostname", e.Hostname)
		host("health_flags", healthFlags(e))
		host("weight", e.Weight)
		host("region", e.Region)
		host("zone", e.Zone)
		host("priority", e.Priority)
		host("ewma_ms", ewma(e))
		if e.Ejected {
			host("connect_failures_in_a_row", e.ConnectFailures)
			host("ejected_until", e.EjectedUntil.UTC().Format(time.RFC3339Nano))
			host("reason", e.Reason)
		}
	}
}

func ewma(e endpoints.EndpointStatus) string {
	return strconv.FormatFloat(float64(e.EWMA)/float64(time.Millisecond), 'f', 3, 64)
}

// healthFlags are Envoy's names; "healthy" when there is none.
func healthFlags(e endpoints.EndpointStatus) string {
	var b strings.Builder
	if e.Ejected {
		b.WriteString("/failed_outlier_check")
	}
	switch e.Health {
	case mesh.Unhealthy:
		b.WriteString("/failed_eds_health")
	case mesh.Degraded:
		b.WriteString("/degraded_eds_health")
	case mesh.Draining:
		b.WriteString("/eds_status_draining")
	case mesh.Healthy:
	}
	if b.Len() == 0 {
		return "healthy"
	}
	return b.String()
}

// The JSON of Envoy's admin.v3.Clusters as far as it applies; numbers of 64
// bits are strings there. hostJSON is ours from ejected_until on.
type clustersJSON struct {
	ClusterStatuses []clusterJSON `json:"cluster_statuses"`
}

type clusterJSON struct {
	Name           string     `json:"name"`
	AddedViaAPI    bool       `json:"added_via_api"`
	EDSServiceName string     `json:"eds_service_name,omitempty"`
	HostStatuses   []hostJSON `json:"host_statuses"`
}

type hostJSON struct {
	Address      addressJSON    `json:"address"`
	Stats        []statJSON     `json:"stats"`
	HealthStatus map[string]any `json:"health_status"`
	Weight       uint32         `json:"weight"`
	Hostname     string         `json:"hostname,omitempty"`
	Priority     uint32         `json:"priority,omitempty"`
	Locality     localityJSON   `json:"locality"`

	EjectedUntil *time.Time    `json:"ejected_until,omitempty"`
	OnTrial      bool          `json:"on_trial,omitempty"`
	Reason       string        `json:"reason,omitempty"`
	EWMA         string        `json:"ewma_ms"`
	Identity     mesh.Identity `json:"identity,omitempty"`
}

type addressJSON struct {
	SocketAddress struct {
		Address   string `json:"address"`
		PortValue uint16 `json:"port_value"`
	} `json:"socket_address"`
}

type statJSON struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

type localityJSON struct {
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

func clusterStatus(s endpoints.Status) clusterJSON {
	out := clusterJSON{Name: s.Config.Name, AddedViaAPI: true, EDSServiceName: s.Config.ServiceName, HostStatuses: []hostJSON{}}
	for _, e := range s.Endpoints {
		out.HostStatuses = append(out.HostStatuses, hostStatus(e))
	}
	return out
}

func hostStatus(e endpoints.EndpointStatus) hostJSON {
	h := hostJSON{
		Weight: e.Weight, Hostname: e.Hostname, Priority: e.Priority, OnTrial: e.OnTrial, EWMA: ewma(e), Identity: e.Identity,
		Locality: localityJSON{e.Region, e.Zone}, HealthStatus: map[string]any{"eds_health_status": e.Health.String()},
	}
	h.Address.SocketAddress.Address, h.Address.SocketAddress.PortValue = e.Address.Addr().String(), e.Address.Port()
	counter := func(name string, v uint64) {
		h.Stats = append(h.Stats, statJSON{"COUNTER", name, strconv.FormatUint(v, 10)})
	}
	counter("cx_connect_fail", e.Total.ConnectFailed)
	counter("rq_error", e.Total.Failed)
	counter("rq_success", e.Total.Succeeded)
	counter("rq_total", e.Total.Issued)
	h.Stats = append(h.Stats, statJSON{"GAUGE", "rq_active", strconv.FormatInt(e.InFlight, 10)})
	if e.Ejected {
		h.HealthStatus["failed_outlier_check"] = true
		until := e.EjectedUntil.UTC()
		h.EjectedUntil, h.Reason = &until, string(e.Reason)
	}
	return h
}

// freshness serves /freshness: for each cluster, whether what is in force was
// vouched for, when, and by which version.
func (c Config) freshness(w http.ResponseWriter, _ *http.Request) {
	s := c.Discovery.Status()
	out := freshnessJSON{
		Connected: s.Connected, Server: s.Server, Since: s.Since, LastError: s.LastError,
		LoadedFromDisk: s.LoadedFromDisk, Clusters: []clusterFreshness{},
	}
	if !s.LastMessageAt.IsZero() {
		out.LastMessageAt = &s.LastMessageAt
	}
	for _, k := range s.Clusters {
		f := clusterFreshness{
			Name: k.Name, State: k.State, ClusterVersion: k.ClusterVersion, EndpointVersion: k.EndpointVersion,
			FromDisk: k.FromDisk, Reason: k.Reason,
		}
		if !k.ConfirmedAt.IsZero() {
			age := time.Since(k.ConfirmedAt).Seconds()
			f.ConfirmedAt, f.AgeSeconds = &k.ConfirmedAt, &age
		}
		for _, r := range k.Resources {
			f.Resources = append(f.Resources, resourceFreshness{
				Type: r.Type.Short(), Name: r.Name, Version: r.Version,
				ConfirmedAt: r.ConfirmedAt, AgeSeconds: time.Since(r.ConfirmedAt).Seconds(),
			})
		}
		out.Clusters = append(out.Clusters, f)
	}
	writeJSON(w, out)
}

type freshnessJSON struct {
	Connected      bool               `json:"connected"`
	Server         string             `json:"server"`
	Since          time.Time          `json:"since"`
	LastMessageAt  *time.Time         `json:"lastMessageAt,omitempty"`
	LastError      string             `json:"lastError,omitempty"`
	LoadedFromDisk int                `json:"loadedFromDisk"`
	Clusters       []clusterFreshness `json:"clusters"`
}

type clusterFreshness struct {
	Name            string          `json:"name"`
	State           discovery.State `json:"state"`
	ConfirmedAt     *time.Time      `json:"confirmedAt,omitempty"`
	AgeSeconds      *float64        `json:"ageSeconds,omitempty"`
	ClusterVersion  string          `json:"clusterVersion,omitempty"`
	EndpointVersion string          `json:"endpointVersion,omitempty"`
	FromDisk        bool            `json:"fromDisk"`
	Reason          string          `json:"reason,omitempty"`
	// Resources are the single ones; AgeSeconds above is that of the oldest.
	Resources []resourceFreshness `json:"resources,omitempty"`
}

type resourceFreshness struct {
	Type        string    `json:"type"`
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	ConfirmedAt time.Time `json:"confirmedAt"`
	AgeSeconds  float64   `json:"ageSeconds"`
}

// configDump serves /config_dump: the clusters as discovery gave them.
func (c Config) configDump(w http.ResponseWriter, _ *http.Request) {
	type endpoint struct {
		Address  string        `json:"address"`
		Identity mesh.Identity `json:"identity,omitempty"`
		Health   string        `json:"health"`
		Weight   uint32        `json:"weight"`
		Priority uint32        `json:"priority"`
		Region   string        `json:"region,omitempty"`
		Zone     string        `json:"zone,omitempty"`
	}
	type cluster struct {
		Name            string           `json:"name"`
		ServiceName     string           `json:"serviceName"`
		Policy          discovery.Policy `json:"policy"`
		HTTP2           bool             `json:"http2"`
		ConnectTimeout  string           `json:"connectTimeout"`
		ClusterVersion  string           `json:"clusterVersion"`
		EndpointVersion string           `json:"endpointVersion"`
		FromDisk        bool             `json:"fromDisk"`
		Endpoints       []endpoint       `json:"endpoints"`
	}
	clusters := []cluster{}
	for _, s := range c.Endpoints.Status() {
		k := s.Config
		out := cluster{k.Name, k.ServiceName, k.Policy, k.HTTP2, k.ConnectTimeout.String(), k.ClusterVersion, k.EndpointVersion, k.FromDisk, []endpoint{}}
		for _, e := range k.Endpoints {
			out.Endpoints = append(out.Endpoints, endpoint{e.Address.String(), e.Identity, e.Health.String(), e.Weight, e.Priority, e.Region, e.Zone})
		}
		clusters = append(clusters, out)
	}
	writeJSON(w, map[string]any{"node": map[string]string{"id": c.NodeID}, "listeners": c.Listeners, "clusters": clusters})
}
