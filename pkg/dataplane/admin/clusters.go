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
	for p := range discovery.Priorities {
		l := cfg.Limits(p)
		line(p.String()+"_priority::max_connections", l.Connections)
		line(p.String()+"_priority::max_pending_requests", l.Pending)
		line(p.String()+"_priority::max_requests", l.Requests)
		line(p.String()+"_priority::max_retries", l.Retries)
	}
	line("added_via_api", true)
	line("eds_service_name", cfg.ServiceName)
	line("lb_policy", cfg.Policy)
	line("http2", cfg.HTTP2)
	line("phase", s.Phase)
	if !s.Without.IsZero() {
		line("without_endpoint_since", s.Without.UTC().Format(time.RFC3339Nano))
	}
	for _, b := range s.Breakers {
		line(b.Priority.String()+"_priority::"+b.Breaker.String()+"_active", b.Active)
		line(b.Priority.String()+"_priority::"+b.Breaker.String()+"_open", b.Open())
		line(b.Priority.String()+"_priority::"+b.Breaker.String()+"_overflow", b.Shed)
	}
	for _, e := range s.Endpoints {
		host := func(fact string, v any) { fmt.Fprintf(w, "%s::%s::%s::%v\n", cfg.Name, e.Address, fact, v) }
		host("cx_active", e.OpenConnections)
		host("cx_connect_fail", e.Total.ConnectFailed)
		host("cx_total", e.Connections)
		host("rq_active", e.InFlight)
		host("rq_error", e.Total.Failed)
		host("rq_success", e.Total.Succeeded)
		host("rq_total", e.Total.Issued)
		host("hostname", e.Hostname)
		host("health_flags", healthFlags(e))
		host("weight", e.Weight)
		host("region", e.Region)
		host("zone", e.Zone)
		host("sub_zone", e.SubZone)
		host("priority", e.Priority)
		host("success_rate", percent(e.SuccessRate))
		host("local_origin_success_rate", percent(e.LocalSuccessRate))
		host("ejections", e.Ejections)
		host("ewma_ms", ewma(e))
		if e.Ejected {
			host("connect_failures_in_a_row", e.ConnectFailures)
			host("ejected_until", e.EjectedUntil.UTC().Format(time.RFC3339Nano))
			host("reason", e.Reason)
		}
		if e.CheckWhy != "" {
			host("failed_check", e.CheckWhy)
		}
	}
}

func ewma(e endpoints.EndpointStatus) string {
	return strconv.FormatFloat(float64(e.EWMA)/float64(time.Millisecond), 'f', 3, 64)
}

// percent is -1 where there is no rate, as in Envoy.
func percent(rate *float64) string {
	if rate == nil {
		return "-1"
	}
	return strconv.FormatFloat(*rate, 'f', -1, 64)
}

// healthFlags are Envoy's names; "healthy" when there is none.
func healthFlags(e endpoints.EndpointStatus) string {
	var b strings.Builder
	if e.FailedCheck {
		b.WriteString("/failed_active_hc")
	}
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
	if e.CheckPending {
		b.WriteString("/pending_active_hc")
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
	Name           string `json:"name"`
	AddedViaAPI    bool   `json:"added_via_api"`
	EDSServiceName string `json:"eds_service_name,omitempty"`

	CircuitBreakers breakersJSON `json:"circuit_breakers"`
	// Phase is ours.
	Phase        endpoints.Phase `json:"phase"`
	HostStatuses []hostJSON      `json:"host_statuses"`
}

type breakersJSON struct {
	Thresholds []thresholdsJSON `json:"thresholds"`
}

type thresholdsJSON struct {
	Priority    string `json:"priority"`
	Connections uint32 `json:"max_connections"`
	Pending     uint32 `json:"max_pending_requests"`
	Requests    uint32 `json:"max_requests"`
	Retries     uint32 `json:"max_retries"`
}

type percentJSON struct {
	Value float64 `json:"value"`
}

type hostJSON struct {
	Address      addressJSON    `json:"address"`
	Stats        []statJSON     `json:"stats"`
	HealthStatus map[string]any `json:"health_status"`
	Weight       uint32         `json:"weight"`
	Hostname     string         `json:"hostname,omitempty"`
	Priority     uint32         `json:"priority,omitempty"`
	Locality     localityJSON   `json:"locality"`

	SuccessRate      *percentJSON `json:"success_rate,omitempty"`
	LocalSuccessRate *percentJSON `json:"local_origin_success_rate,omitempty"`

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
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

func clusterStatus(s endpoints.Status) clusterJSON {
	out := clusterJSON{Name: s.Config.Name, AddedViaAPI: true, EDSServiceName: s.Config.ServiceName, Phase: s.Phase, HostStatuses: []hostJSON{}}
	for p := range discovery.Priorities {
		l := s.Config.Limits(p)
		out.CircuitBreakers.Thresholds = append(out.CircuitBreakers.Thresholds,
			thresholdsJSON{strings.ToUpper(p.String()), l.Connections, l.Pending, l.Requests, l.Retries})
	}
	for _, e := range s.Endpoints {
		out.HostStatuses = append(out.HostStatuses, hostStatus(e))
	}
	return out
}

func hostStatus(e endpoints.EndpointStatus) hostJSON {
	h := hostJSON{
		Weight: e.Weight, Hostname: e.Hostname, Priority: e.Priority, OnTrial: e.OnTrial, EWMA: ewma(e), Identity: e.Identity,
		Locality: localityJSON{e.Region, e.Zone, e.SubZone}, HealthStatus: map[string]any{"eds_health_status": e.Health.String()},
	}
	h.Address.SocketAddress.Address, h.Address.SocketAddress.PortValue = e.Address.Addr().String(), e.Address.Port()
	counter := func(name string, v uint64) {
		h.Stats = append(h.Stats, statJSON{"COUNTER", name, strconv.FormatUint(v, 10)})
	}
	counter("cx_connect_fail", e.Total.ConnectFailed)
	counter("cx_total", e.Connections)
	counter("rq_error", e.Total.Failed)
	counter("rq_success", e.Total.Succeeded)
	counter("rq_total", e.Total.Issued)
	h.Stats = append(h.Stats, statJSON{"GAUGE", "cx_active", strconv.FormatInt(e.OpenConnections, 10)},
		statJSON{"GAUGE", "rq_active", strconv.FormatInt(e.InFlight, 10)})
	for _, flag := range []struct {
		name string
		is   bool
	}{{"failed_active_health_check", e.FailedCheck}, {"pending_active_hc", e.CheckPending}} {
		if flag.is {
			h.HealthStatus[flag.name] = true
		}
	}
	if e.SuccessRate != nil {
		h.SuccessRate = &percentJSON{*e.SuccessRate}
	}
	if e.LocalSuccessRate != nil {
		h.LocalSuccessRate = &percentJSON{*e.LocalSuccessRate}
	}
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
		Lifetimes       lifetimes        `json:"lifetimes"`
		Retry           retryJSON        `json:"retry"`
		ClusterVersion  string           `json:"clusterVersion"`
		EndpointVersion string           `json:"endpointVersion"`
		FromDisk        bool             `json:"fromDisk"`
		Endpoints       []endpoint       `json:"endpoints"`
	}
	clusters := []cluster{}
	for _, s := range c.Endpoints.Status() {
		k := s.Config
		out := cluster{
			k.Name, k.ServiceName, k.Policy, k.HTTP2, k.ConnectTimeout.String(), lifetimesOf(k), retryOf(k),
			k.ClusterVersion, k.EndpointVersion, k.FromDisk,
			[]endpoint{},
		}
		for _, e := range k.Endpoints {
			out.Endpoints = append(out.Endpoints, endpoint{e.Address.String(), e.Identity, e.Health.String(), e.Weight, e.Priority, e.Region, e.Zone})
		}
		clusters = append(clusters, out)
	}
	writeJSON(w, map[string]any{"node": map[string]string{"id": c.NodeID}, "listeners": c.Listeners, "clusters": clusters})
}

// lifetimes are durations as text; "none" is for no bound.
type lifetimes struct {
	Timeout string `json:"timeout"`
	Drain   string `json:"drain"`
}

func lifetimesOf(k *discovery.Cluster) lifetimes {
	l := lifetimes{Timeout: "none", Drain: "the proxy's"}
	if k.Timeout > 0 {
		l.Timeout = k.Timeout.String()
	}
	switch {
	case k.Drain == nil:
	case *k.Drain == 0:
		l.Drain = "none"
	default:
		l.Drain = k.Drain.String()
	}
	return l
}

// retryJSON is the policy in force, whether it was sent or is the default.
type retryJSON struct {
	On            []string `json:"on"`
	Attempts      int      `json:"attempts"`
	PerTryTimeout string   `json:"perTryTimeout,omitempty"`
}

func retryOf(k *discovery.Cluster) retryJSON {
	p := k.RetryPolicy()
	r := retryJSON{On: append([]string{}, p.On...), Attempts: p.Attempts}
	if p.PerTryTimeout > 0 {
		r.PerTryTimeout = p.PerTryTimeout.String()
	}
	return r
}
