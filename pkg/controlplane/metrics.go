package controlplane

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	translations   prometheus.Counter
	generation     prometheus.Gauge
	historyDropped prometheus.Counter
	// propagation is labelled stage, origin.
	propagation *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, propagation *prometheus.HistogramVec, from sources) *metrics {
	m := &metrics{
		translations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_translations_total", Help: "Services translated.",
		}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshmesh_generation", Help: "The store's generation: one step for every published change.",
		}),
		historyDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_history_dropped_total", Help: "Published changes that the history no longer holds, since it is full.",
		}),
		propagation: propagation,
	}
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshmesh_source_lag_seconds", Help: "For how long a source has not been reached, or what is held of it may be older than it; 0 while neither is so.",
	}, func() float64 { return from.status(time.Now()).lag.Seconds() })
	r.MustRegister(propagation, m.translations, m.generation, m.historyDropped, lag)
	return m
}

// published observes the stages up to the publication, once for each change in it.
func (m *metrics) published(entries []history.Entry) {
	seen := make(map[mesh.Cause]bool)
	for i := range entries {
		e := &entries[i]
		if e.Cause.ReceivedAt.IsZero() || seen[e.Cause] {
			continue
		}
		seen[e.Cause] = true
		if e.Cause.ChangedBy != mesh.ByReceipt {
			m.propagation.WithLabelValues(string(xds.StageSource), string(e.Cause.ChangedBy)).Observe(e.Cause.Lag().Seconds())
		}
		m.propagation.WithLabelValues(string(xds.StageTranslate), "").Observe(max(e.PublishedAt.Sub(e.Cause.ReceivedAt), 0).Seconds())
	}
}
