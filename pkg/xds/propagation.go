package xds

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/prometheus/client_golang/prometheus"
)

// Stage is a part of a change's way; the metric label.
type Stage string

// The stages. Source and translate are observed once a change, the others once a
// change and stream: not again for what is sent again, and not for what a
// client asks for that has not changed.
const (
	// StageSource: from the change in Kubernetes to its receipt by the source. Not
	// observed for a change that does not tell its time (origin receipt).
	StageSource Stage = "source"
	// StageTranslate: from the receipt to the publication.
	StageTranslate Stage = "translate"
	// StageSend: from the publication to the response that completed the change.
	StageSend Stage = "send"
	// StageAck: from that response to its ACK.
	StageAck Stage = "ack"
	// StageTotal: from the change to the ACK; with the origin receipt, from the receipt.
	StageTotal Stage = "total"
)

// Propagation makes the histogram freshmesh_propagation_seconds{stage,origin}:
// how long a change takes. origin says what the time of the change was taken from
// (mesh.ChangeOrigin) in the stages source and total, and is empty in the others.
// It is shared by those who observe the stages.
func Propagation() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "freshmesh_propagation_seconds",
		Help:    "Time from a change to its acknowledgement, by stage, and by what the change's time was taken from.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"stage", "origin"})
}

func (m *metrics) observe(stage Stage, origin mesh.ChangeOrigin, d time.Duration) {
	m.propagation.WithLabelValues(string(stage), string(origin)).Observe(max(d, 0).Seconds())
}

// acked observes the changes that an ACK completed.
func (m *metrics) acked(now time.Time, changes []ads.Change) {
	for _, c := range changes {
		total, watched := c.Cause.Took(now)
		if !watched {
			continue // it was there before this process
		}
		m.observe(StageSend, "", c.SentAt.Sub(c.PublishedAt))
		m.observe(StageAck, "", now.Sub(c.SentAt))
		m.observe(StageTotal, c.Cause.ChangedBy, total)
	}
}
