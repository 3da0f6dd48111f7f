package discovery

import (
	"errors"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Balancing is how endpoints are chosen beside the policy. A zero field stands
// for its default, which DefaultBalancing gives; where that is zero too, the thing is off.
type Balancing struct {
	// MinRing and MaxRing bound the points of a hash ring.
	MinRing, MaxRing uint64
	// MaglevTable is the size of the Maglev table, a prime.
	MaglevTable uint64
	// LocalityWeighted shares a priority's load among its localities by their weights.
	LocalityWeighted bool
	// Overprovisioning is the factor in percent by which the healthy part of a priority is multiplied.
	Overprovisioning uint32
	// PanicThreshold is the percentage of healthy endpoints below which all of a priority are used; 0 for never.
	PanicThreshold float64
	SlowStart      SlowStart
}

// SlowStart gives an endpoint that has just come its share little by little.
type SlowStart struct {
	// Window is how long it takes; 0 for no slow start.
	Window time.Duration
	// Aggression is the exponent's inverse; 1 is linear.
	Aggression float64
	// MinWeightPercent is the least share, in percent.
	MinWeightPercent float64
}

// DefaultBalancing holds where a resource says nothing (Envoy's defaults, but
// for the panic threshold, which is off where Envoy has 50).
var DefaultBalancing = Balancing{
	MinRing: 1024, MaxRing: 1 << 23, MaglevTable: 65537, Overprovisioning: 140,
	SlowStart: SlowStart{Aggression: 1, MinWeightPercent: 10},
}

const (
	policyPackage = "type.googleapis.com/envoy.extensions.load_balancing_policies."
	// maxMaglevTable is Envoy's bound of table_size.
	maxMaglevTable = 5000011
)

// readBalancing takes the first known entry of load_balancing_policy (gRFC A52), else lb_policy.
func (p *clusterPart) readBalancing(c *clusterv3.Cluster) error {
	b := &p.base.Balancing
	*b = DefaultBalancing
	common := c.GetCommonLbConfig()
	b.LocalityWeighted = common.GetLocalityWeightedLbConfig() != nil
	if t := common.GetHealthyPanicThreshold(); t != nil {
		if t.GetValue() < 0 || t.GetValue() > 100 {
			return errors.New("common_lb_config.healthy_panic_threshold: must be 0 to 100")
		}
		b.PanicThreshold = t.GetValue()
	}
	known, err := p.readPolicies(c.GetLoadBalancingPolicy(), 0)
	if err != nil {
		return fmt.Errorf("load_balancing_policy: %w", err)
	}
	if known {
		return nil
	}
	return p.readLbPolicy(c)
}

func (p *clusterPart) readLbPolicy(c *clusterv3.Cluster) error {
	p.base.Policy = LeastRequest
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		// The enum's zero: a list without a known entry says more than a field left out.
		if len(c.GetLoadBalancingPolicy().GetPolicies()) == 0 {
			p.base.Policy = RoundRobin
		}
		return p.readSlowStart(c.GetRoundRobinLbConfig().GetSlowStartConfig())
	case clusterv3.Cluster_RANDOM:
		p.base.Policy = Random
	case clusterv3.Cluster_RING_HASH:
		p.base.Policy = RingHash
		r := c.GetRingHashLbConfig()
		return p.readRing(r.GetMinimumRingSize(), r.GetMaximumRingSize())
	case clusterv3.Cluster_MAGLEV:
		p.base.Policy = Maglev
		return p.readMaglev(c.GetMaglevLbConfig().GetTableSize())
	default:
		return p.readSlowStart(c.GetLeastRequestLbConfig().GetSlowStartConfig())
	}
	return nil
}

// readPolicies tells whether the list holds a known policy. The depth bounds policies wrapped in policies.
func (p *clusterPart) readPolicies(l *clusterv3.LoadBalancingPolicy, depth int) (bool, error) {
	if depth > 8 {
		return false, nil
	}
	for _, entry := range l.GetPolicies() {
		known, err := p.readPolicy(entry.GetTypedExtensionConfig().GetTypedConfig(), depth)
		if known || err != nil {
			return known, err
		}
	}
	return false, nil
}

func (p *clusterPart) readPolicy(config *anypb.Any, depth int) (bool, error) {
	b := &p.base.Balancing
	var err error
	read := func(m proto.Message) bool {
		err = config.UnmarshalTo(m)
		return err == nil
	}
	locality := func(l *commonv3.LocalityLbConfig) {
		b.LocalityWeighted = b.LocalityWeighted || l.GetLocalityWeightedLbConfig() != nil
	}
	switch config.GetTypeUrl() {
	case policyPackage + "least_request.v3.LeastRequest":
		p.base.Policy = LeastRequest
		if m := (&leastrequestv3.LeastRequest{}); read(m) {
			locality(m.GetLocalityLbConfig())
			err = p.readSlowStart(m.GetSlowStartConfig())
		}
	case policyPackage + "round_robin.v3.RoundRobin":
		p.base.Policy = RoundRobin
		if m := (&roundrobinv3.RoundRobin{}); read(m) {
			locality(m.GetLocalityLbConfig())
			err = p.readSlowStart(m.GetSlowStartConfig())
		}
	case policyPackage + "random.v3.Random":
		p.base.Policy = Random
		if m := (&randomv3.Random{}); read(m) {
			locality(m.GetLocalityLbConfig())
		}
	case policyPackage + "ring_hash.v3.RingHash":
		p.base.Policy = RingHash
		if m := (&ringhashv3.RingHash{}); read(m) {
			b.LocalityWeighted = b.LocalityWeighted || m.GetLocalityWeightedLbConfig() != nil
			err = p.readRing(m.GetMinimumRingSize(), m.GetMaximumRingSize())
		}
	case policyPackage + "maglev.v3.Maglev":
		p.base.Policy = Maglev
		if m := (&maglevv3.Maglev{}); read(m) {
			b.LocalityWeighted = b.LocalityWeighted || m.GetLocalityWeightedLbConfig() != nil
			err = p.readMaglev(m.GetTableSize())
		}
	case policyPackage + "wrr_locality.v3.WrrLocality":
		m := &wrrlocalityv3.WrrLocality{}
		if !read(m) {
			return false, err
		}
		known, err := p.readPolicies(m.GetEndpointPickingPolicy(), depth+1)
		b.LocalityWeighted = b.LocalityWeighted || known
		return known, err
	default:
		return false, nil
	}
	return true, err
}

// slowStart is the same message in two packages.
type slowStart interface {
	GetSlowStartWindow() *durationpb.Duration
	GetAggression() *corev3.RuntimeDouble
	GetMinWeightPercent() *typev3.Percent
}

func (p *clusterPart) readSlowStart(m slowStart) error {
	s := &p.base.Balancing.SlowStart
	var err error
	if s.Window, err = durationOr(m.GetSlowStartWindow(), 0); err != nil {
		return fmt.Errorf("slow_start_window: %w", err)
	}
	if a := m.GetAggression(); a != nil {
		if s.Aggression = a.GetDefaultValue(); s.Aggression <= 0 {
			return errors.New("slow_start aggression: must be above 0")
		}
	}
	if w := m.GetMinWeightPercent(); w != nil {
		if s.MinWeightPercent = w.GetValue(); s.MinWeightPercent < 0 || s.MinWeightPercent > 100 {
			return errors.New("slow_start min_weight_percent: must be 0 to 100")
		}
	}
	return nil
}

func (p *clusterPart) readRing(least, most *wrapperspb.UInt64Value) error {
	b := &p.base.Balancing
	if least != nil {
		b.MinRing = least.GetValue()
	}
	if most != nil {
		b.MaxRing = most.GetValue()
	}
	if limit := DefaultBalancing.MaxRing; b.MinRing > b.MaxRing || b.MinRing > limit || b.MaxRing > limit || b.MaxRing == 0 {
		return fmt.Errorf("ring size %d to %d: must be ordered and at most %d", b.MinRing, b.MaxRing, limit)
	}
	return nil
}

func (p *clusterPart) readMaglev(size *wrapperspb.UInt64Value) error {
	if size == nil {
		return nil
	}
	n := size.GetValue()
	if n < 2 || n > maxMaglevTable || !prime(n) {
		return fmt.Errorf("table_size %d: must be a prime of at most %d", n, maxMaglevTable)
	}
	p.base.Balancing.MaglevTable = n
	return nil
}

func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// durationOr reads a duration that must not be negative when it is there.
func durationOr(d *durationpb.Duration, otherwise time.Duration) (time.Duration, error) {
	if d == nil {
		return otherwise, nil
	}
	if d.CheckValid() != nil || d.AsDuration() < 0 {
		return otherwise, errors.New("must not be negative")
	}
	return d.AsDuration(), nil
}

func numberOr(n *wrapperspb.UInt32Value, otherwise uint32) uint32 {
	if n == nil {
		return otherwise
	}
	return n.GetValue()
}
