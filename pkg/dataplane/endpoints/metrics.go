package endpoints

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// collector reads a Set when it is scraped.
type collector struct {
	set *Set

	open, remaining, shed, phase, endpoints *prometheus.Desc
}

// NewCollector gives the metrics of breakers, phases and endpoints, to be
// registered once. The high priority's breakers show once they were used.
func NewCollector(s *Set) prometheus.Collector {
	breaker := []string{"cluster", "priority", "breaker"}
	return &collector{
		set: s,
		open: prometheus.NewDesc("freshmesh_breaker_open",
			"1 while a breaker's limit is reached, else 0.", breaker, nil),
		remaining: prometheus.NewDesc("freshmesh_breaker_remaining",
			"How much more a breaker lets through.", breaker, nil),
		shed: prometheus.NewDesc("freshmesh_breaker_shed_total",
			"What a breaker did not let through.", breaker, nil),
		phase: prometheus.NewDesc("freshmesh_cluster_phase",
			"1 for the phase that a cluster is in: serving, waiting for an endpoint, failing fast.", []string{"cluster", "phase"}, nil),
		endpoints: prometheus.NewDesc("freshmesh_cluster_endpoints",
			"Endpoints by what keeps them from being used.", []string{"cluster", "state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.remaining, c.shed, c.phase, c.endpoints} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.set.Status() {
		name := s.Config.Name
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{name}, labels...)...)
		}
		for _, b := range s.Breakers {
			if b.Priority != discovery.DefaultPriority && b.Active == 0 && b.Shed == 0 {
				continue
			}
			gauge(c.open, oneIf(b.Open()), b.Priority.String(), b.Breaker.String())
			gauge(c.remaining, float64(b.Remaining()), b.Priority.String(), b.Breaker.String())
			to <- prometheus.MustNewConstMetric(c.shed, prometheus.CounterValue, float64(b.Shed), name, b.Priority.String(), b.Breaker.String())
		}
		for _, p := range []Phase{Serving, Waiting, FailingFast} {
			gauge(c.phase, oneIf(p == s.Phase), string(p))
		}
		counts := map[string]int{"usable": 0, "ejected": 0, "failed_check": 0, "unhealthy": 0, "draining": 0}
		for _, e := range s.Endpoints {
			counts[e.state()]++
		}
		for state, n := range counts {
			gauge(c.endpoints, float64(n), state)
		}
	}
}

// state is the first thing that keeps the endpoint from being used.
func (e *EndpointStatus) state() string {
	switch {
	case e.Health == mesh.Draining:
		return "draining"
	case e.Health == mesh.Unhealthy:
		return "unhealthy"
	case e.Ejected:
		return "ejected"
	case e.FailedCheck:
		return "failed_check"
	}
	return "usable"
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
