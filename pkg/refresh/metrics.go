package refresh

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

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
	for _, h := range [...]held{heldBackOff, heldNodeBudget, heldReadBudget} {
		m.deferred.WithLabelValues(string(h))
	}
	m.dropped.WithLabelValues(string(overflow))
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
	for _, h := range out.dropped {
		m.dropped.WithLabelValues(string(h)).Inc()
	}
}

// addresses gives the endpoints as one text for the log, the first few by name.
func addresses(failures []EndpointFailure) string {
	const named = 8
	var b strings.Builder
	for i, f := range failures {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == named {
			b.WriteString("…")
			break
		}
		if f.Address.IsValid() {
			b.WriteString(f.Address.String())
		} else {
			b.WriteString("unknown")
		}
	}
	return b.String()
}

// connectFailures is the larger of what the locality counts and what the endpoints add up to: a
// client that reports both reports the same dials twice.
func (r Report) connectFailures() uint64 {
	var n uint64
	for _, f := range r.Endpoints {
		n = plus(n, f.ConnectFailed)
	}
	return max(n, r.FailConnects)
}
