package proxy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Metrics are the data plane's own.
type Metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	retries   *prometheus.CounterVec
	ejections *prometheus.CounterVec
	abuses    *prometheus.CounterVec
	drain     prometheus.Gauge
	panics    prometheus.Counter
}

// unknownCluster is the label for requests that named no cluster in effect:
// what clients make up must not make series.
const unknownCluster = "unknown"

// NewMetrics registers the metrics. It fails if they are registered already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_requests_total",
			Help: "Requests and opaque connections that ended, by the reason for which the proxy failed them.",
		},
			[]string{"cluster", "code_class", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "freshmesh_request_duration_seconds",
			Help:    "Time from a request's headers to the end of its response.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		},
			[]string{"cluster"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_retries_total",
			Help: "Attempts after which a request went to another endpoint, by why.",
		},
			[]string{"cluster", "reason"}),
		ejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_endpoint_ejections_total",
			Help: "Endpoints that were usable and were ejected.",
		}, []string{"reason"}),
		abuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_http2_abuses_total",
			Help: "Clients' HTTP/2 connections that were closed because of what wears a proxy out, by its kind.",
		}, []string{"kind"}),
		drain: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshmesh_drain_state",
			Help: "0 while serving, 1 while draining.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_panics_total",
			Help: "Defects of the proxy that ended a connection or a stream instead of the process.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.retries, m.ejections, m.abuses, m.drain, m.panics} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// Ejected counts an ejection.
func (m *Metrics) Ejected(r upstream.Reason) { m.ejections.WithLabelValues(string(r)).Inc() }

// Panicked counts a defect of ours that ended a connection or a stream.
func (m *Metrics) Panicked() { m.panics.Inc() }

// abused counts a connection that was closed for a client's abuse.
func (m *Metrics) abused(a http2.Abuse) { m.abuses.WithLabelValues(a.String()).Inc() }

// retried counts another attempt. The label is the reason for which the last one
// failed, or the condition of the policy that its answer met.
func (m *Metrics) retried(cluster, label string) {
	m.retries.WithLabelValues(cluster, label).Inc()
}

// refused counts what was no request.
func (m *Metrics) refused(status int, r upstream.Reason) {
	m.requests.WithLabelValues(unknownCluster, strconv.Itoa(status/100)+"xx", string(r)).Inc()
}

// series are those of the last request that some owner of it had.
type series struct {
	label    string
	class    int
	requests prometheus.Counter
	duration prometheus.Observer
}

// endedAs is ended for a request that most likely counts as the last one of s.
func (m *Metrics) endedAs(s *series, cluster string, status int, r upstream.Reason, took time.Duration) {
	if r != upstream.None {
		m.ended(cluster, status, r, took)
		return
	}
	if s.requests == nil || s.class != status/100 || s.label != cluster {
		*s = series{
			cluster, status / 100,
			m.requests.WithLabelValues(cluster, strconv.Itoa(status/100)+"xx", string(r)), m.duration.WithLabelValues(cluster),
		}
	}
	s.requests.Inc()
	s.duration.Observe(took.Seconds())
}

// ended counts a request; status 0 stands for an opaque connection.
func (m *Metrics) ended(cluster string, status int, r upstream.Reason, took time.Duration) {
	class := "tcp"
	if status > 0 {
		class = strconv.Itoa(status/100) + "xx"
	}
	m.requests.WithLabelValues(cluster, class, string(r)).Inc()
	if status > 0 {
		m.duration.WithLabelValues(cluster).Observe(took.Seconds())
	}
}
