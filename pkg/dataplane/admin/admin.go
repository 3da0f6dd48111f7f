package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/freshmesh/freshmesh/internal/profiling"
	"github.com/freshmesh/freshmesh/pkg/dataplane/barrier"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
)

// Discovery is what the admin side asks of discovery.
type Discovery interface {
	Status() discovery.Status
	Reset(cluster string)
}

// Listener is an address that the proxy listens on.
type Listener struct {
	// Name is "outbound", or the cluster that the listener leads to.
	Name     string `json:"name"`
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
}

// State is whether the proxy is ready, and if not, why.
type State string

// The states, in the words of Envoy where it has them (admin.v3.ServerInfo.State).
const (
	Live              State = "LIVE"
	Draining          State = "DRAINING"
	PreInitializing   State = "PRE_INITIALIZING"
	HealthcheckFailed State = "HEALTHCHECK_FAILED"
)

// Config is what the handlers show and do. Every field must be set.
type Config struct {
	NodeID, Version string
	StartedAt       time.Time
	Discovery       Discovery
	Endpoints       *endpoints.Set
	Listeners       []Listener
	Gatherer        prometheus.Gatherer
	Logger          hclog.Logger
	State           func() State
	// Drain begins a drain; without grace listeners close at once.
	Drain func(graceful bool)
	// FailHealth makes readiness fail, or not any more.
	FailHealth func(fail bool)
	// Quit ends the process as SIGTERM does.
	Quit func()
	// Pprof serves /debug/pprof/.
	Pprof bool
	// Barrier asks whether our pod is drained.
	Barrier *barrier.Asker
}

// route is one path of the admin side.
type route struct {
	method, path, help string
	// serve is nil where another handler has the path.
	serve func(http.ResponseWriter, *http.Request)
}

func (c Config) routes() []route {
	all := []route{
		{http.MethodGet, "/ready", "200 when live, else 503 and why", c.ready},
		{http.MethodGet, "/server_info", "version, state, uptime", c.serverInfo},
		{http.MethodGet, "/clusters", "endpoints and their state (?format=json)", c.clusters},
		{http.MethodGet, "/config_dump", "what is in force, and from where", c.configDump},
		{http.MethodGet, "/listeners", "addresses (?format=json)", c.listeners},
		{http.MethodGet, "/freshness", "how lately the control plane vouched for each cluster", c.freshness},
		{http.MethodGet, "/stats", "metrics, one a line", c.stats},
		{http.MethodGet, "/stats/prometheus", "metrics for Prometheus", c.prometheus},
		{http.MethodPost, "/admin/reset-discovery", "forget and ask again (?cluster=NAME)", c.resetDiscovery},
		{http.MethodPost, "/drain_listeners", "begin to drain (?graceful)", c.drainListeners},
		{http.MethodPost, "/healthcheck/fail", "make /ready fail", c.health(true)},
		{http.MethodPost, "/healthcheck/ok", "undo /healthcheck/fail", c.health(false)},
		{http.MethodPost, "/logging", "log level (?level=trace|debug|info|warn|error|off)", c.logging},
		{http.MethodPost, "/quitquitquit", "drain and exit", c.quit},
	}
	if c.Pprof {
		// Its handlers are several, and take every method.
		all = append(all, route{http.MethodGet, "/debug/pprof/", "profiles of the process", nil})
	}
	return all
}

// Handler serves the admin address.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	routes := c.routes()
	for _, r := range routes {
		if r.serve != nil {
			mux.HandleFunc(r.method+" "+r.path, r.serve)
		}
	}
	if c.Pprof {
		profiling.Handle(mux)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, r := range routes {
			fmt.Fprintf(w, "%-4s %-24s %s\n", r.method, r.path, r.help)
		}
	})
	return mux
}

// HealthHandler serves the health address: GET /ready and GET /drain, and nothing else.
func HealthHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", c.ready)
	mux.HandleFunc("GET /drain", c.drain())
	return mux
}

func (c Config) ready(w http.ResponseWriter, _ *http.Request) {
	state := c.State()
	if state != Live {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, state)
}

func (c Config) serverInfo(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{
		"version": c.Version, "state": c.State(), "node": map[string]string{"id": c.NodeID},
		"uptime_current_epoch": fmt.Sprintf("%ds", int(time.Since(c.StartedAt).Seconds())),
	})
}

func (c Config) listeners(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("format") == "json" {
		writeJSON(w, map[string]any{"listener_statuses": c.Listeners})
		return
	}
	for _, l := range c.Listeners {
		fmt.Fprintf(w, "%s::%s\n", l.Name, l.Address)
	}
}

func (c Config) resetDiscovery(w http.ResponseWriter, r *http.Request) {
	cluster := r.FormValue("cluster")
	if cluster != "" && !slices.ContainsFunc(c.Discovery.Status().Clusters, func(s discovery.ClusterStatus) bool { return s.Name == cluster }) {
		http.Error(w, fmt.Sprintf("cluster %q is not subscribed", cluster), http.StatusNotFound)
		return
	}
	c.Discovery.Reset(cluster)
	fmt.Fprintln(w, "OK")
}

func (c Config) drainListeners(w http.ResponseWriter, r *http.Request) {
	c.Drain(r.URL.Query().Has("graceful"))
	fmt.Fprintln(w, "OK")
}

func (c Config) health(fail bool) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		c.FailHealth(fail)
		fmt.Fprintln(w, "OK")
	}
}

func (c Config) logging(w http.ResponseWriter, r *http.Request) {
	text := r.FormValue("level")
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		http.Error(w, fmt.Sprintf("level %q is none of trace, debug, info, warn, error, off", text), http.StatusBadRequest)
		return
	}
	c.Logger.SetLevel(level)
	fmt.Fprintln(w, "OK")
}

func (c Config) quit(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "OK")
	c.Quit()
}

func (c Config) prometheus(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// stats gives "name{label="value",…}: value", sorted; a histogram gives its count and sum.
func (c Config) stats(w http.ResponseWriter, _ *http.Request) {
	families, err := c.Gatherer.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				fmt.Fprintf(w, "%s: %v\n", name, m.GetCounter().GetValue())
			case m.GetGauge() != nil:
				fmt.Fprintf(w, "%s: %v\n", name, m.GetGauge().GetValue())
			case m.GetHistogram() != nil:
				fmt.Fprintf(w, "%s: count %d, sum %v\n", name, m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
			}
		}
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	_ = e.Encode(v)
}
