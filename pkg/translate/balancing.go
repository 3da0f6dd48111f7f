package translate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	least_requestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	round_robinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// slowStart is slow start that is on; zero fields are the clients' defaults.
type slowStart struct {
	window           time.Duration
	aggression       float64
	minWeightPercent float64
}

func parseSlowStart(text string) (*slowStart, error) {
	s := &slowStart{}
	err := pairs(text, func(key, value string) (err error) {
		switch key {
		case "window":
			s.window, err = duration(value, 0)
		case "aggression":
			s.aggression, err = decimal(value, 0.1, 100)
		case "min-weight-percent":
			s.minWeightPercent, err = decimal(value, 1, 100)
		default:
			err = fmt.Errorf("%q is no key of slow-start", key)
		}
		return err
	})
	if err == nil && s.window == 0 {
		err = errors.New("window is missing")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// decimal reads a number of least to most.
func decimal(text string, least, most float64) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= least && n <= most) {
		return 0, fmt.Errorf("%q is no number in %v..%v", text, least, most)
	}
	return n, nil
}

func (s *slowStart) proto() *commonv3.SlowStartConfig {
	c := &commonv3.SlowStartConfig{SlowStartWindow: durationpb.New(s.window)}
	if s.aggression > 0 {
		// Envoy wants a runtime key beside the value.
		c.Aggression = &corev3.RuntimeDouble{DefaultValue: s.aggression, RuntimeKey: "freshmesh.slow_start.aggression"}
	}
	if s.minWeightPercent > 0 {
		c.MinWeightPercent = &typev3.Percent{Value: s.minWeightPercent}
	}
	return c
}

// slowStarts tells whether a policy knows slow start.
func slowStarts(policy string) bool {
	return policy == policyLeastRequest || policy == policyRoundRobin
}

// balancing is the list of policies for the service.
func (s *settings) balancing() *clusterv3.LoadBalancingPolicy {
	if s.slowStart == nil {
		return policies[s.policy]
	}
	round := &round_robinv3.RoundRobin{SlowStartConfig: s.slowStart.proto()}
	if s.policy == policyRoundRobin {
		return policyList(round)
	}
	return policyList(&least_requestv3.LeastRequest{SlowStartConfig: s.slowStart.proto()}, round)
}

// closing is what closes what is established.
type closing struct{ onEjection, onOverload bool }

func parseClosing(text string) (closing, error) {
	var c closing
	for item := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(item) {
		case "ejection":
			c.onEjection = true
		case "overload":
			c.onOverload = true
		default:
			return closing{}, fmt.Errorf("%q is none of ejection, overload", strings.TrimSpace(item))
		}
	}
	return c, nil
}

// healthCheck is an active health check; zero fields are the defaults below.
type healthCheck struct {
	kind, of           string
	interval, timeout  time.Duration
	unhealthy, healthy uint32
}

func parseHealthCheck(text string) (*healthCheck, error) {
	h := &healthCheck{interval: 10 * time.Second, timeout: time.Second, unhealthy: 3, healthy: 2}
	kind, rest, more := strings.Cut(text, ",")
	h.kind, h.of, _ = strings.Cut(strings.TrimSpace(kind), "=")
	switch {
	case h.kind == "http" && strings.HasPrefix(h.of, "/"):
	case h.kind == "tcp" && h.of == "":
	case h.kind == "grpc":
	default:
		return nil, fmt.Errorf("%q is none of http=/PATH, tcp, grpc, grpc=SERVICE", strings.TrimSpace(kind))
	}
	if strings.ContainsFunc(h.of, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%q has characters that a path or a service name must not have", h.of)
	}
	if !more {
		return h, nil
	}
	err := pairs(rest, func(key, value string) (err error) {
		switch key {
		case "interval":
			h.interval, err = duration(value, 0)
		case "timeout":
			h.timeout, err = duration(value, 0)
		case "unhealthy":
			h.unhealthy, err = count(value, 100)
		case "healthy":
			h.healthy, err = count(value, 100)
		default:
			err = fmt.Errorf("%q is no key of health-check", key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// proto is nil on a port that the check does not fit: Envoy refuses a cluster
// with a gRPC check that does not speak HTTP/2.
func (h *healthCheck) proto(http2 bool) []*corev3.HealthCheck {
	if h == nil || h.kind == "grpc" && !http2 {
		return nil
	}
	c := &corev3.HealthCheck{
		Timeout: durationpb.New(h.timeout), Interval: durationpb.New(h.interval), IntervalJitterPercent: 10,
		UnhealthyThreshold: wrapperspb.UInt32(h.unhealthy), HealthyThreshold: wrapperspb.UInt32(h.healthy),
	}
	switch h.kind {
	case "http":
		check := &corev3.HealthCheck_HttpHealthCheck{Path: h.of}
		if http2 {
			check.CodecClientType = typev3.CodecClientType_HTTP2
		}
		c.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check}
	case "tcp":
		c.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}}
	case "grpc":
		c.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: h.of}}
	}
	return []*corev3.HealthCheck{c}
}
