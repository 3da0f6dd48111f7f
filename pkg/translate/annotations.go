package translate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// defaultConnectTimeout holds for services that say nothing else.
const defaultConnectTimeout = 5 * time.Second

// settings are a service's annotations, read. Nil pointers mean "not said".
type settings struct {
	policy                                  string
	connectTimeout                          time.Duration
	maxConnections, maxPending, maxRequests *uint32
	maxRetries                              *uint32
	slowStart                               *slowStart
	// panicThreshold is in percent; 0 for no panic.
	panicThreshold float64
	closing        closing
	healthCheck    *healthCheck
	outlier        *outlier
	retry          *retry
	opaque, skip   map[uint16]bool
	// proxyProtocol are opaque ports whose servers want a PROXY header, version 2.
	proxyProtocol map[uint16]bool
	// drain is nil when not said, 0 for no end.
	drain *time.Duration
	// timeout is 0 when not said.
	timeout time.Duration
}

// outlier is outlier detection that is on; zero fields are the clients' defaults.
type outlier struct {
	consecutive5xx, consecutiveGateway, consecutiveLocal, maxEjectionPercent uint32
	successRateHosts, successRateRequests, successRateStdev                  uint32
	interval, baseEjectionTime, maxEjectionTime                              time.Duration
	splitLocal                                                               bool
}

// retry without conditions is "off".
type retry struct {
	on       []string
	attempts uint32
	// perTryTimeout is 0 when not said.
	perTryTimeout time.Duration
}

// setting reads one annotation into s.
type setting func(s *settings, svc *mesh.Service, text string) error

var annotations = map[string]setting{
	"lb-policy": func(s *settings, _ *mesh.Service, text string) error {
		if _, ok := policies[text]; !ok {
			return fmt.Errorf("%q is none of %s", text, strings.Join(slices.Sorted(maps.Keys(policies)), ", "))
		}
		s.policy = text
		return nil
	},
	"connect-timeout": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.connectTimeout, err = duration(text, s.connectTimeout)
		return err
	},
	"max-connections": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.maxConnections, err = limit(text)
		return err
	},
	"max-pending": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.maxPending, err = limit(text)
		return err
	},
	"max-requests": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.maxRequests, err = limit(text)
		return err
	},
	"max-retries": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.maxRetries, err = limit(text)
		return err
	},
	"slow-start": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.slowStart, err = parseSlowStart(text)
		return err
	},
	"panic-threshold": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.panicThreshold, err = decimal(text, 0, 100)
		return err
	},
	"close-established": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.closing, err = parseClosing(text)
		return err
	},
	"health-check": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.healthCheck, err = parseHealthCheck(text)
		return err
	},
	"drain": func(s *settings, _ *mesh.Service, text string) (err error) {
		if text == "0" || text == "0s" {
			s.drain = new(time.Duration)
			return nil
		}
		d, err := duration(text, 0)
		if err == nil {
			s.drain = &d
		}
		return err
	},
	"timeout": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.timeout, err = duration(text, 0)
		return err
	},
	"outlier": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.outlier, err = parseOutlier(text)
		return err
	},
	"retry": func(s *settings, _ *mesh.Service, text string) (err error) {
		s.retry, err = parseRetry(text)
		return err
	},
	"opaque-ports": func(s *settings, svc *mesh.Service, text string) (err error) {
		s.opaque, err = portSet(svc, text)
		return err
	},
	"proxy-protocol": func(s *settings, svc *mesh.Service, text string) (err error) {
		s.proxyProtocol, err = portSet(svc, text)
		return err
	},
	"skip-ports": func(s *settings, svc *mesh.Service, text string) (err error) {
		s.skip, err = portSet(svc, text)
		return err
	},
}

// readSettings reads the annotations. One that is wrong, or that nobody knows,
// is a problem and changes nothing.
func readSettings(svc *mesh.Service, report func(field, reason string)) settings {
	s := settings{policy: policyLeastRequest, connectTimeout: defaultConnectTimeout}
	if svc.ClientIPAffinity {
		s.policy = policyRingHash
	}
	for _, name := range slices.Sorted(maps.Keys(svc.Annotations)) {
		field := "metadata.annotations[freshmesh.dev/" + name + "]"
		read, ok := annotations[name]
		if !ok {
			report(field, "no such annotation")
			continue
		}
		if err := read(&s, svc, svc.Annotations[name]); err != nil {
			report(field, err.Error())
		}
	}
	if s.slowStart != nil && !slowStarts(s.policy) {
		report("metadata.annotations[freshmesh.dev/slow-start]", "lb-policy "+s.policy+" knows no slow start")
		s.slowStart = nil
	}
	if s.healthCheck != nil && s.healthCheck.kind == "grpc" &&
		!slices.ContainsFunc(svc.Ports, func(p mesh.ServicePort) bool { return protocolOf(p, &s).http2 }) {
		report("metadata.annotations[freshmesh.dev/health-check]", "grpc needs a port that speaks HTTP/2 (appProtocol grpc or kubernetes.io/h2c)")
		s.healthCheck = nil
	}
	return s
}

// duration reads a duration of 1ms to 1h; with an error it gives the default.
func duration(text string, otherwise time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return otherwise, fmt.Errorf("%q is no duration, such as 250ms or 5s", text)
	}
	if d < time.Millisecond || d > time.Hour {
		return otherwise, fmt.Errorf("%s is outside 1ms..1h", text)
	}
	return d, nil
}

func limit(text string) (*uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no number in 0..4294967295", text)
	}
	return new(uint32(n)), nil
}

// portSet reads a list of ports of the service by name or number. An unknown
// one spoils the list: half of it could be worse than none.
func portSet(svc *mesh.Service, text string) (map[uint16]bool, error) {
	set := make(map[uint16]bool)
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		known := false
		for _, p := range svc.Ports {
			if item != "" && (p.Name == item || strconv.Itoa(int(p.Port)) == item) {
				set[p.Port], known = true, true
			}
		}
		if !known {
			return nil, fmt.Errorf("%q is no port of the service", item)
		}
	}
	return set, nil
}

// parseOutlier gives nil for "off".
func parseOutlier(text string) (*outlier, error) {
	switch text {
	case "off":
		return nil, nil
	case "on":
		return &outlier{}, nil
	}
	o := &outlier{}
	err := pairs(text, func(key, value string) (err error) {
		switch key {
		case "consecutive-5xx":
			o.consecutive5xx, err = count(value, 1_000_000)
		case "consecutive-gateway-failure":
			o.consecutiveGateway, err = count(value, 1_000_000)
		case "consecutive-local-origin-failure":
			o.consecutiveLocal, err = count(value, 1_000_000)
		case "success-rate-minimum-hosts":
			o.successRateHosts, err = count(value, 1_000_000)
		case "success-rate-request-volume":
			o.successRateRequests, err = count(value, 1_000_000)
		case "success-rate-stdev-factor":
			o.successRateStdev, err = count(value, 1_000_000)
		case "max-ejection-time":
			o.maxEjectionTime, err = duration(value, 0)
		case "split-local-origin":
			o.splitLocal, err = strconv.ParseBool(value)
			if err != nil {
				err = fmt.Errorf("%q is neither true nor false", value)
			}
		case "max-ejection-percent":
			o.maxEjectionPercent, err = count(value, 100)
		case "interval":
			o.interval, err = duration(value, 0)
		case "base-ejection-time":
			o.baseEjectionTime, err = duration(value, 0)
		default:
			err = fmt.Errorf("%q is no key of outlier", key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// retryOn are the conditions that Envoy (x-envoy-retry-on, x-envoy-retry-grpc-on)
// or gRPC (gRFC A44) know and that need no further configuration.
var retryOn = []string{
	"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited", "retriable-4xx",
	"refused-stream", "http3-post-connect-failure",
	"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
}

func parseRetry(text string) (*retry, error) {
	if text == "off" {
		return &retry{}, nil
	}
	r := &retry{attempts: 1}
	err := pairs(text, func(key, value string) (err error) {
		switch key {
		case "on":
			r.on = strings.Split(value, "|")
			for _, c := range r.on {
				if !slices.Contains(retryOn, c) {
					return fmt.Errorf("%q is no condition to retry on", c)
				}
			}
		case "attempts":
			r.attempts, err = count(value, 10)
		case "per-try-timeout":
			r.perTryTimeout, err = duration(value, 0)
		default:
			err = fmt.Errorf("%q is no key of retry", key)
		}
		return err
	})
	if err == nil && len(r.on) == 0 {
		err = errors.New("on is missing")
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// pairs reads "key=value, key=value", each key once.
func pairs(text string, take func(key, value string) error) error {
	seen := make(map[string]bool)
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return fmt.Errorf("%q is not key=value", item)
		}
		if seen[key] {
			return fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		if err := take(key, value); err != nil {
			return err
		}
	}
	return nil
}

// count reads a number of 1 to most.
func count(text string, most uint32) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 || n > uint64(most) {
		return 0, fmt.Errorf("%q is no number in 1..%d", text, most)
	}
	return uint32(n), nil
}
