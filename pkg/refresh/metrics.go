package refresh

import (
	"github.com/prometheus/client_golang/prometheus"
)

// overflow is the one reason for which a report is dropped: too many wait, or are remembered.
const overflow = "overflow"

type metrics struct {
	verdicts *prometheus.CounterVec
	reads    prometheus.Counter
	deferred *prometheus.CounterVec
	dropped  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_refresh_total",
			Help: "Failure reports by what they turned out to mean.",
		}, []string{"verdict"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_refresh_reads_total",
			Help: "Live reads of the source that failure reports caused.",
		}),
		deferred: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_refresh_deferred_total",
			Help: "Failure reports that a budget held back, by reason.",
		}, []string{"reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_refresh_dropped_total",
			Help: "Failure reports that found no room, by reason.",
		}, []string{"reason"}),
	}
	for _, v := range verdicts {
		m.verdicts.WithLabelValues(string(v))
	}
	for _, h := range [...]deferral{backOff, nodeBudget, readBudget} {
		m.deferred.WithLabelValues(string(h))
	}
	m.dropped.WithLabelValues(overflow)
	if reg != nil {
		reg.MustRegister(m.verdicts, m.reads, m.deferred, m.dropped)
	}
	return m
}

func (m *metrics) count(out effects) {
	m.reads.Add(float64(len(out.read)))
	for _, f := range out.findings {
		m.verdicts.WithLabelValues(string(f.verdict)).Inc()
	}
	for _, h := range out.deferred {
		m.deferred.WithLabelValues(string(h)).Inc()
	}
	m.dropped.WithLabelValues(overflow).Add(float64(out.dropped))
}
