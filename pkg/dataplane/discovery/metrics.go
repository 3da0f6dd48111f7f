package discovery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the client's own; the gauges are computed when collected.
type metrics struct {
	client *Client

	reconnects    prometheus.Counter
	stateFailures prometheus.Counter
	rejected      *prometheus.CounterVec
	watchdog      *prometheus.CounterVec
	loadReports   *prometheus.CounterVec

	age       *prometheus.Desc
	connected *prometheus.Desc
}

func newMetrics(c *Client, r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		client:        c,
		reconnects:    counter("freshmesh_discovery_reconnects_total", "Times that the connection to the control plane was lost or given up."),
		stateFailures: counter("freshmesh_discovery_state_failures_total", "Times that the last good configuration could not be saved."),
		rejected:      vector("freshmesh_discovery_rejected_total", "Resources refused.", "type"),
		watchdog:      vector("freshmesh_discovery_watchdog_total", "What the watchdog did, by rung.", "rung"),
		loadReports:   vector("freshmesh_discovery_load_reports_total", "Load reports, by result (sent, failed).", "result"),
		age: prometheus.NewDesc("freshmesh_discovery_age_seconds",
			"Time since the control plane last vouched for the cluster in force.", []string{"cluster"}, nil),
		connected: prometheus.NewDesc("freshmesh_discovery_connected", "1 while an ADS stream is open.", nil, nil),
	}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m)
}

func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.reconnects, m.stateFailures, m.rejected, m.watchdog, m.loadReports}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	ch <- m.age
	ch <- m.connected
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	up := 0.0
	if m.client.connection.Load().Connected {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(m.connected, prometheus.GaugeValue, up)
	now := time.Now()
	m.client.slots.Range(func(_, v any) bool {
		if cluster := v.(*slot).answer.Load().cluster; cluster != nil && !cluster.ConfirmedAt.IsZero() {
			ch <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue,
				now.Sub(cluster.ConfirmedAt).Seconds(), cluster.Name)
		}
		return true
	})
}
