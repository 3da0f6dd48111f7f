package xds

import (
	"context"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	nacks     *prometheus.CounterVec
	resets    *prometheus.CounterVec
	responses *prometheus.CounterVec
	refused   *prometheus.CounterVec
	// propagation is labelled stage, origin.
	propagation *prometheus.HistogramVec
	// connections counts those closed after a reset.
	connections prometheus.Counter
}

func newMetrics(r prometheus.Registerer, propagation *prometheus.HistogramVec, s *Server) *metrics {
	m := &metrics{
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_nacks_total", Help: "Responses that clients refused, by resource type.",
		}, []string{"type"}),
		resets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_stream_resets_total", Help: "Streams that the server ended, by reason.",
		}, []string{"reason"}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_responses_total", Help: "Responses sent, by resource type, probes included.",
		}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshmesh_streams_refused_total", Help: "Streams refused or ended for what the client sent, by reason.",
		}, []string{"reason"}),
		propagation: propagation,
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshmesh_connections_closed_total", Help: "Connections that the server closed because no new stream followed a reset.",
		}),
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(string(reason)) // shown from the start, as 0
	}
	for _, reason := range ads.CloseReasons() {
		m.resets.WithLabelValues(string(reason))
	}
	r.MustRegister(m.nacks, m.resets, m.responses, m.refused, m.connections, nodeStates{s})
	return m
}

// typeLabel keeps the label's values a closed set: clients may name any type.
func typeLabel(t mesh.Type) string {
	if slices.Contains(mesh.GeneratedTypes[:], t) {
		return t.Short()
	}
	return "other"
}

// nodeStates counts nodes by state when it is scraped.
type nodeStates struct{ server *Server }

var nodesDesc = prometheus.NewDesc("freshmesh_nodes", "Nodes by state, as in the audit.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (nodeStates) Describe(ch chan<- *prometheus.Desc) { ch <- nodesDesc }

// scrapeTimeout bounds how long a scrape waits for the owners of streams.
const scrapeTimeout = 2 * time.Second

// Collect implements prometheus.Collector.
func (n nodeStates) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	nodes, err := n.server.Nodes(ctx, "")
	if err != nil {
		ch <- prometheus.NewInvalidMetric(nodesDesc, err)
		return
	}
	s := ack.Summarize(nodes)
	for _, state := range ack.States() {
		ch <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(s.Of(state)), string(state))
	}
}
