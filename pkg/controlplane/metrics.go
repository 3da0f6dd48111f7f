package controlplane

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	translations   prometheus.Counter
	generation     prometheus.Gauge
	translateDelay prometheus.Observer
	source         prometheus.Observer
}

func newMetrics(r prometheus.Registerer, propagation *prometheus.HistogramVec, from sources) *metrics {
	m := &metrics{
		translations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_translations_total", Help: "Services translated.",
		}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshmesh_generation", Help: "The store's generation: one step for every published change.",
		}),
		translateDelay: propagation.WithLabelValues("translate"),
		source:         propagation.WithLabelValues("source"),
	}
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshmesh_source_lag_seconds", Help: "For how long a source has not been reached, or what is held of it may be older than it; 0 while neither is so.",
	}, func() float64 { return from.status(time.Now()).lag.Seconds() })
	r.MustRegister(propagation, m.translations, m.generation, lag)
	return m
}

// sourceDelay observes how old the changes are that tell when they were made.
func (m *metrics) sourceDelay(changes []translate.Change, now time.Time) {
	for _, c := range changes {
		if c.Put == nil {
			continue
		}
		// A change from before the start of the process says nothing about it.
		if at := c.Put.Metadata().ChangedAt; !at.IsZero() && now.Sub(at) < time.Minute {
			m.source.Observe(max(now.Sub(at), 0).Seconds())
		}
	}
}
