package discovery

import (
	"errors"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Outlier is outlier_detection as Envoy defines it. Percentages are 0 to 100;
// an Enforce of 0 means that the finding ejects nobody.
type Outlier struct {
	Consecutive5xx, EnforceConsecutive5xx         uint32
	ConsecutiveGateway, EnforceConsecutiveGateway uint32
	// Split keeps failures of our side (no connection, a reset, a timeout) apart from answers.
	Split                                     bool
	ConsecutiveLocal, EnforceConsecutiveLocal uint32
	// Interval is the time between two looks at rates.
	Interval time.Duration
	// BaseTime is the first ejection's length, MaxTime the longest, Jitter what is added at random.
	BaseTime, MaxTime, Jitter time.Duration
	// MaxPercent of the endpoints may be ejected, and always one.
	MaxPercent uint32

	EnforceSuccessRate, EnforceLocalSuccessRate uint32
	SuccessRateHosts, SuccessRateRequests       uint32
	// SuccessRateStdev is in thousandths: 1900 is 1.9.
	SuccessRateStdev uint32

	FailurePercent, EnforceFailurePercent, EnforceLocalFailurePercent uint32
	FailurePercentHosts, FailurePercentRequests                       uint32
}

// DefaultOutlier holds for the fields that an outlier_detection leaves out
// (Envoy's defaults, and a jitter of a tenth of the base time, where Envoy has none).
var DefaultOutlier = Outlier{
	Consecutive5xx: 5, EnforceConsecutive5xx: 100,
	ConsecutiveGateway: 5, EnforceConsecutiveGateway: 0,
	ConsecutiveLocal: 5, EnforceConsecutiveLocal: 100,
	Interval: 10 * time.Second, BaseTime: 30 * time.Second, MaxTime: 300 * time.Second, Jitter: 3 * time.Second,
	MaxPercent:         10,
	EnforceSuccessRate: 100, EnforceLocalSuccessRate: 100,
	SuccessRateHosts: 5, SuccessRateRequests: 100, SuccessRateStdev: 1900,
	FailurePercent: 85, FailurePercentHosts: 5, FailurePercentRequests: 50,
}

func (p *clusterPart) readOutlier(c *clusterv3.Cluster) error {
	m := c.GetOutlierDetection()
	if m == nil {
		return nil
	}
	o := DefaultOutlier
	for _, f := range []struct {
		name    string
		from    *wrapperspb.UInt32Value
		to      *uint32
		percent bool
	}{
		{"consecutive_5xx", m.GetConsecutive_5Xx(), &o.Consecutive5xx, false},
		{"enforcing_consecutive_5xx", m.GetEnforcingConsecutive_5Xx(), &o.EnforceConsecutive5xx, true},
		{"consecutive_gateway_failure", m.GetConsecutiveGatewayFailure(), &o.ConsecutiveGateway, false},
		{"enforcing_consecutive_gateway_failure", m.GetEnforcingConsecutiveGatewayFailure(), &o.EnforceConsecutiveGateway, true},
		{"consecutive_local_origin_failure", m.GetConsecutiveLocalOriginFailure(), &o.ConsecutiveLocal, false},
		{"enforcing_consecutive_local_origin_failure", m.GetEnforcingConsecutiveLocalOriginFailure(), &o.EnforceConsecutiveLocal, true},
		{"max_ejection_percent", m.GetMaxEjectionPercent(), &o.MaxPercent, true},
		{"enforcing_success_rate", m.GetEnforcingSuccessRate(), &o.EnforceSuccessRate, true},
		{"enforcing_local_origin_success_rate", m.GetEnforcingLocalOriginSuccessRate(), &o.EnforceLocalSuccessRate, true},
		{"success_rate_minimum_hosts", m.GetSuccessRateMinimumHosts(), &o.SuccessRateHosts, false},
		{"success_rate_request_volume", m.GetSuccessRateRequestVolume(), &o.SuccessRateRequests, false},
		{"success_rate_stdev_factor", m.GetSuccessRateStdevFactor(), &o.SuccessRateStdev, false},
		{"failure_percentage_threshold", m.GetFailurePercentageThreshold(), &o.FailurePercent, true},
		{"enforcing_failure_percentage", m.GetEnforcingFailurePercentage(), &o.EnforceFailurePercent, true},
		{"enforcing_failure_percentage_local_origin", m.GetEnforcingFailurePercentageLocalOrigin(), &o.EnforceLocalFailurePercent, true},
		{"failure_percentage_minimum_hosts", m.GetFailurePercentageMinimumHosts(), &o.FailurePercentHosts, false},
		{"failure_percentage_request_volume", m.GetFailurePercentageRequestVolume(), &o.FailurePercentRequests, false},
	} {
		if *f.to = numberOr(f.from, *f.to); f.percent && *f.to > 100 {
			return fmt.Errorf("outlier_detection.%s: %d is above 100", f.name, *f.to)
		}
	}
	o.Split = m.GetSplitExternalLocalOriginErrors()
	if err := o.readTimes(m); err != nil {
		return fmt.Errorf("outlier_detection: %w", err)
	}
	p.base.Outlier = &o
	return nil
}

func (o *Outlier) readTimes(m *clusterv3.OutlierDetection) error {
	for _, f := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{
		{"interval", m.GetInterval(), &o.Interval},
		{"base_ejection_time", m.GetBaseEjectionTime(), &o.BaseTime},
		{"max_ejection_time", m.GetMaxEjectionTime(), &o.MaxTime},
	} {
		var err error
		if *f.to, err = durationOr(f.from, *f.to); err != nil || *f.to == 0 {
			return errors.New(f.name + ": must be above 0")
		}
	}
	o.MaxTime = max(o.MaxTime, o.BaseTime)
	o.Jitter = o.BaseTime / 10
	var err error
	if o.Jitter, err = durationOr(m.GetMaxEjectionTimeJitter(), o.Jitter); err != nil {
		return fmt.Errorf("max_ejection_time_jitter: %w", err)
	}
	return nil
}
