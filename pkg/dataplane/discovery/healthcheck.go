package discovery

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// CheckKind is what an active health check speaks.
type CheckKind string

// The kinds of health check.
const (
	CheckHTTP CheckKind = "http"
	CheckTCP  CheckKind = "tcp"
	CheckGRPC CheckKind = "grpc"
)

// HealthCheck is one entry of Cluster.health_checks (envoy.config.core.v3.HealthCheck).
type HealthCheck struct {
	Kind CheckKind
	// Timeout bounds one check; Interval is the time from one to the next.
	Timeout, Interval time.Duration
	// InitialJitter, IntervalJitter and JitterPercent add up to so much to the first wait and to each.
	InitialJitter, IntervalJitter time.Duration
	JitterPercent                 uint32
	// NoTrafficInterval takes Interval's place while the cluster has had no traffic.
	NoTrafficInterval time.Duration
	// UnhealthyInterval and the edge intervals take Interval's place for an
	// endpoint that is unhealthy, and while a change of its health is not decided yet.
	UnhealthyInterval, UnhealthyEdgeInterval, HealthyEdgeInterval time.Duration
	// Unhealthy and Healthy are how many results in a row turn the state.
	Unhealthy, Healthy uint32
	// Port takes the endpoint's port's place; 0 for none.
	Port uint16

	// Host, Method, Path and Expected are for HTTP; Host "" is the cluster's name. HTTP2 speaks prior knowledge.
	Host, Method, Path string
	Expected           []StatusRange
	HTTP2              bool
	// Send and Receive are for TCP: what is written, and the pieces that must come in this order. Both may be nil.
	Send    []byte
	Receive [][]byte
	// Service is for gRPC: the service asked for; "" is the whole server. Host is its authority.
	Service string
}

// StatusRange is From ≤ status < To.
type StatusRange struct{ From, To int64 }

// DefaultHealthCheck holds for what a health check leaves out (Envoy's
// defaults; Envoy requires timeout, interval and thresholds).
var DefaultHealthCheck = HealthCheck{
	Timeout: time.Second, Interval: 10 * time.Second, JitterPercent: 10, NoTrafficInterval: 60 * time.Second,
	Unhealthy: 3, Healthy: 2, Method: "GET", Expected: []StatusRange{{200, 201}},
}

func (p *clusterPart) readHealthChecks(c *clusterv3.Cluster) error {
	for i, m := range c.GetHealthChecks() {
		h, err := healthCheck(m)
		if err != nil {
			return fmt.Errorf("health_checks[%d]: %w", i, err)
		}
		p.base.HealthChecks = append(p.base.HealthChecks, h)
	}
	return nil
}

func healthCheck(m *corev3.HealthCheck) (HealthCheck, error) {
	h := DefaultHealthCheck
	if err := h.readTimes(m); err != nil {
		return h, err
	}
	if m.GetIntervalJitterPercent() > 0 {
		h.JitterPercent = m.GetIntervalJitterPercent()
	} else if h.IntervalJitter > 0 {
		h.JitterPercent = 0
	}
	h.Unhealthy = max(numberOr(m.GetUnhealthyThreshold(), h.Unhealthy), 1)
	h.Healthy = max(numberOr(m.GetHealthyThreshold(), h.Healthy), 1)
	if port := m.GetAltPort().GetValue(); port > 65535 {
		return h, fmt.Errorf("alt_port %d is above 65535", port)
	}
	h.Port = uint16(m.GetAltPort().GetValue())
	switch k := m.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_:
		return h, h.readHTTP(k.HttpHealthCheck)
	case *corev3.HealthCheck_TcpHealthCheck_:
		return h, h.readTCP(k.TcpHealthCheck)
	case *corev3.HealthCheck_GrpcHealthCheck_:
		h.Kind, h.Service, h.Host = CheckGRPC, k.GrpcHealthCheck.GetServiceName(), k.GrpcHealthCheck.GetAuthority()
		return h, nil
	}
	return h, errors.New("only http, tcp and grpc health checks are supported")
}

func (h *HealthCheck) readTimes(m *corev3.HealthCheck) error {
	for _, f := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{
		{"timeout", m.GetTimeout(), &h.Timeout},
		{"interval", m.GetInterval(), &h.Interval},
		{"no_traffic_interval", m.GetNoTrafficInterval(), &h.NoTrafficInterval},
		{"unhealthy_interval", m.GetUnhealthyInterval(), &h.UnhealthyInterval},
		{"unhealthy_edge_interval", m.GetUnhealthyEdgeInterval(), &h.UnhealthyEdgeInterval},
		{"healthy_edge_interval", m.GetHealthyEdgeInterval(), &h.HealthyEdgeInterval},
		{"initial_jitter", m.GetInitialJitter(), &h.InitialJitter},
		{"interval_jitter", m.GetIntervalJitter(), &h.IntervalJitter},
	} {
		var err error
		if *f.to, err = durationOr(f.from, *f.to); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if h.Timeout == 0 || h.Interval == 0 {
		return errors.New("timeout and interval must be above 0")
	}
	h.UnhealthyInterval = cmp.Or(h.UnhealthyInterval, h.Interval)
	h.UnhealthyEdgeInterval = cmp.Or(h.UnhealthyEdgeInterval, h.UnhealthyInterval)
	h.HealthyEdgeInterval = cmp.Or(h.HealthyEdgeInterval, h.Interval)
	return nil
}

func (h *HealthCheck) readHTTP(m *corev3.HealthCheck_HttpHealthCheck) error {
	h.Kind, h.Host, h.Path = CheckHTTP, m.GetHost(), m.GetPath()
	if h.Path == "" || h.Path[0] != '/' {
		return fmt.Errorf("http_health_check.path %q: must begin with /", h.Path)
	}
	if m.GetMethod() != corev3.RequestMethod_METHOD_UNSPECIFIED {
		h.Method = m.GetMethod().String()
	}
	h.HTTP2 = m.GetCodecClientType() == typev3.CodecClientType_HTTP2
	if len(m.GetExpectedStatuses()) > 0 {
		h.Expected = nil
	}
	for _, r := range m.GetExpectedStatuses() {
		if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() >= r.GetEnd() {
			return fmt.Errorf("http_health_check.expected_statuses: [%d, %d) is no part of [100, 600)", r.GetStart(), r.GetEnd())
		}
		h.Expected = append(h.Expected, StatusRange{r.GetStart(), r.GetEnd()})
	}
	return nil
}

func (h *HealthCheck) readTCP(m *corev3.HealthCheck_TcpHealthCheck) (err error) {
	h.Kind = CheckTCP
	if h.Send, err = payload(m.GetSend()); err != nil {
		return fmt.Errorf("tcp_health_check.send: %w", err)
	}
	for i, r := range m.GetReceive() {
		piece, err := payload(r)
		if err != nil {
			return fmt.Errorf("tcp_health_check.receive[%d]: %w", i, err)
		}
		h.Receive = append(h.Receive, piece)
	}
	return nil
}

// payload reads text, which is hexadecimal, or bytes.
func payload(m *corev3.HealthCheck_Payload) ([]byte, error) {
	if b := m.GetBinary(); b != nil {
		return b, nil
	}
	return hex.DecodeString(m.GetText())
}
