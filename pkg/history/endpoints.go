package history

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// EndpointChange is one endpoint of an assignment that came, went or changed.
type EndpointChange struct {
	// Endpoint is IP:PORT as netip writes it; for what is no socket address, its text.
	Endpoint string `json:"endpoint"`
	// Was and Now are its health in EDS's words; "" where it was or is not there.
	// Equal ones tell that something else of it changed.
	Was string `json:"was"`
	Now string `json:"now"`
}

// maxEndpoints bounds the endpoints of one Entry.
const maxEndpoints = 1024

// Field numbers of envoy.config.endpoint.v3: endpoints of ClusterLoadAssignment,
// lb_endpoints of LocalityLbEndpoints.
const (
	fieldLocalities  = 2
	fieldLBEndpoints = 2
)

// Diff compares two serialised ClusterLoadAssignments, either of which may be
// nil. Only endpoints whose bytes differ are decoded, so it costs little more
// than reading the bytes. What cannot be read is left out.
func Diff(before, after []byte) (changes []EndpointChange, more int) {
	same := make(map[string]int)
	for b := range rawEndpoints(before) {
		same[string(b)]++
	}
	now := make(map[string]string)
	for b := range rawEndpoints(after) {
		if same[string(b)] > 0 {
			same[string(b)]--
			continue
		}
		put(now, b)
	}
	was := make(map[string]string)
	for b, n := range same {
		if n > 0 {
			put(was, []byte(b))
		}
	}
	for endpoint, health := range was {
		changes = append(changes, EndpointChange{endpoint, health, now[endpoint]})
	}
	for endpoint, health := range now {
		if _, both := was[endpoint]; !both {
			changes = append(changes, EndpointChange{endpoint, "", health})
		}
	}
	slices.SortFunc(changes, func(a, b EndpointChange) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	if more = len(changes) - maxEndpoints; more > 0 {
		return slices.Clone(changes[:maxEndpoints]), more
	}
	return changes, 0
}

func put(into map[string]string, raw []byte) {
	var e endpointv3.LbEndpoint
	if proto.Unmarshal(raw, &e) != nil {
		return
	}
	if endpoint := endpointText(&e); endpoint != "" {
		into[endpoint] = health(&e)
	}
}

// rawEndpoints gives each serialised LbEndpoint of an assignment.
func rawEndpoints(assignment []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for locality := range submessages(assignment, fieldLocalities) {
			for e := range submessages(locality, fieldLBEndpoints) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// submessages gives the bytes of each field of a number, and stops at what is malformed.
func submessages(b []byte, field protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			number, kind, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			b = b[n:]
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return
			}
			value := b[:n]
			b = b[n:]
			if number != field || kind != protowire.BytesType {
				continue
			}
			inner, _ := protowire.ConsumeBytes(value)
			if !yield(inner) {
				return
			}
		}
	}
}

// endpoints gives the health of each endpoint of a serialised assignment.
func endpoints(assignment []byte) map[string]string {
	out := make(map[string]string)
	for b := range rawEndpoints(assignment) {
		put(out, b)
	}
	return out
}

func endpointText(e *endpointv3.LbEndpoint) string {
	if name := e.GetEndpointName(); name != "" {
		return name
	}
	address := e.GetEndpoint().GetAddress()
	if s := address.GetSocketAddress(); s != nil {
		if s.GetNamedPort() != "" {
			return joined(s.GetAddress(), s.GetNamedPort())
		}
		return joined(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	if p := address.GetPipe(); p != nil {
		return p.GetPath()
	}
	return address.GetEnvoyInternalAddress().GetServerListenerName()
}

// health gives EDS's word; unset counts as healthy (envoy.config.core.v3.HealthStatus).
func health(e *endpointv3.LbEndpoint) string {
	if e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN {
		return corev3.HealthStatus_HEALTHY.String()
	}
	return strings.ToUpper(e.GetHealthStatus().String())
}

// joined is net.JoinHostPort, which stands in a package that pure code must not import.
func joined(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}
