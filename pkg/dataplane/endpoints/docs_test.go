package endpoints

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

var update = flag.Bool("update", false, "write the table of docs/dataplane.md")

const page = "../../../docs/dataplane.md"

// row is a parameter as the page shows it.
type row struct {
	name  string
	value any
	// from is where it can be set, source where the default comes from.
	from, source string
}

const (
	own    = "ours"
	envoy  = "Envoy's default"
	nobody = "–"
)

func parameters() []row {
	b, l, o, h := discovery.DefaultBalancing, discovery.DefaultLimits, discovery.DefaultOutlier, discovery.DefaultHealthCheck
	return []row{
		{"decay of the latency estimate", balance.Decay, nobody, "Finagle, linkerd"},
		{"estimate of an endpoint never asked", balance.Seed, nobody, "linkerd"},
		{"longest Retry-After that is honoured", balance.MaxAvoid, nobody, own},
		{"least ring", b.MinRing, "`ring_hash.minimum_ring_size`", envoy},
		{"largest ring", b.MaxRing, "`ring_hash.maximum_ring_size`", envoy},
		{"Maglev table", b.MaglevTable, "`maglev.table_size`", envoy + ", and the paper's"},
		{"overprovisioning factor", percent(b.Overprovisioning), "`policy.overprovisioning_factor` of EDS", envoy},
		{"panic threshold", percent(b.PanicThreshold), "`healthy_panic_threshold`, `panic-threshold`", own + " (Envoy: 50%)"},
		{"slow start window", b.SlowStart.Window, "`slow_start_config`, `slow-start`", envoy},
		{"slow start aggression", b.SlowStart.Aggression, "`slow_start_config`, `slow-start`", envoy},
		{"slow start least weight", percent(b.SlowStart.MinWeightPercent), "`slow_start_config`, `slow-start`", envoy},

		{"back-off after a failed dial, first", firstBackoff, nobody, own},
		{"back-off after a failed dial, last", maxBackoff, nobody, own},
		{"back-off while no endpoint is usable, last", aloneBackoff, nobody, own},
		{"failed dials in a row that doubt discovery", distrustAfter, nobody, own},
		{"trials by dial at a time", maxTrials, nobody, own},
		{"consecutive 5xx", o.Consecutive5xx, "`outlier_detection.consecutive_5xx`, `outlier`", envoy},
		{"… enforced", percent(o.EnforceConsecutive5xx), "`enforcing_consecutive_5xx`", envoy},
		{"consecutive gateway errors", o.ConsecutiveGateway, "`consecutive_gateway_failure`, `outlier`", envoy},
		{"… enforced", percent(o.EnforceConsecutiveGateway), "`enforcing_consecutive_gateway_failure`", envoy},
		{"consecutive local-origin failures", o.ConsecutiveLocal, "`consecutive_local_origin_failure`, `outlier`", envoy},
		{"… enforced", percent(o.EnforceConsecutiveLocal), "`enforcing_consecutive_local_origin_failure`", envoy},
		{"interval of rates", o.Interval, "`interval`, `outlier`", envoy},
		{"success rate: endpoints", o.SuccessRateHosts, "`success_rate_minimum_hosts`, `outlier`", envoy},
		{"success rate: requests", o.SuccessRateRequests, "`success_rate_request_volume`, `outlier`", envoy},
		{"success rate: standard deviations", float64(o.SuccessRateStdev) / 1000, "`success_rate_stdev_factor`, `outlier`", envoy},
		{"… enforced", percent(o.EnforceSuccessRate), "`enforcing_success_rate`", envoy},
		{"failure percentage", percent(o.FailurePercent), "`failure_percentage_threshold`", envoy},
		{"… enforced", percent(o.EnforceFailurePercent), "`enforcing_failure_percentage`", envoy},
		{"ejection, first", o.BaseTime, "`base_ejection_time`, `outlier`", envoy},
		{"ejection, longest", o.MaxTime, "`max_ejection_time`, `outlier`", envoy},
		{"ejection, jitter", o.Jitter, "`max_ejection_time_jitter`", own + ": a tenth of the first (Envoy: none)"},
		{"endpoints that may be ejected, and always one", percent(o.MaxPercent), "`max_ejection_percent`, `outlier`", envoy},

		{"health check: timeout", h.Timeout, "`health_checks`, `health-check`", own + " (Envoy: required)"},
		{"health check: interval", h.Interval, "`health_checks`, `health-check`", own + " (Envoy: required)"},
		{"health check: jitter", percent(h.JitterPercent), "`interval_jitter_percent`", own + " (Envoy: none)"},
		{"health check: interval without traffic", h.NoTrafficInterval, "`no_traffic_interval`", envoy},
		{"health check: bad results until out", h.Unhealthy, "`unhealthy_threshold`, `health-check`", own + " (Envoy: required)"},
		{"health check: good results until in", h.Healthy, "`healthy_threshold`, `health-check`", own + " (Envoy: required)"},

		{"breaker on connections", l.Connections, "`circuit_breakers`, `max-connections`", envoy},
		{"breaker on pending requests", l.Pending, "`circuit_breakers`, `max-pending`", envoy},
		{"breaker on requests", l.Requests, "`circuit_breakers`, `max-requests`", envoy},
		{"breaker on retries, at least", l.Retries, "`circuit_breakers`, `max-retries`", envoy},
		{"… and so much of the active requests", percent(l.RetryPercent), "`retry_budget`", envoy + " of a budget"},

		{"fail-fast, outbound", DefaultFailFast, "`--fail-fast`", "linkerd"},
		{"fail-fast, inbound", InboundFailFast, "`--fail-fast-inbound`", "linkerd"},
		{"trials go on after the last request for", interestTime, nobody, own},
		{"discovery is asked again at most every", distrustEvery, nobody, own},
	}
}

type percent float64

func (r row) String() string {
	var v string
	switch x := r.value.(type) {
	case time.Duration:
		v = x.String()
		if x == 0 {
			v = "off"
		}
	case percent:
		v = strconv.FormatFloat(float64(x), 'f', -1, 64) + "%"
	default:
		v = fmt.Sprint(x)
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", r.name, v, r.from, r.source)
}

// TestPage holds the table of the page against the code's.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- parameters: tested against the code -->\n", "<!-- end of parameters -->"
	before, rest, ok := strings.Cut(string(text), begin)
	inside, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table of parameters", page)
	}
	want := "| Parameter | Default | Set by | Source of the default |\n|---|---|---|---|\n"
	for _, r := range parameters() {
		want += r.String() + "\n"
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, inside); diff != "" {
		t.Errorf("the table of %s (-code +page); -update writes it:\n%s", page, diff)
	}
}
