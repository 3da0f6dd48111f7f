package faults

import "time"

// scale is how long things take in a run.
type scale struct {
	// probe and ack are the programs' --probe-interval and --ack-timeout.
	probe, ack time.Duration
	// sourceCheck is xds-server's --source-check-interval.
	sourceCheck time.Duration
	// outage is how long a partition or a stopped process lasts.
	outage time.Duration
	// late is by how much late frames are late.
	late time.Duration
	// heal bounds the recovery from a fault's effect.
	heal time.Duration
	// watch is how long traffic is watched after the recovery.
	watch time.Duration
	// whole watches until the bound is over, however soon the recovery was.
	whole bool
}

// full has the defaults of the programs, and the bound that is promised with them.
var full = scale{
	probe: 10 * time.Second, ack: 5 * time.Second, sourceCheck: 30 * time.Second, outage: time.Minute, late: 5 * time.Second,
	heal: 20 * time.Second, watch: 2 * time.Second, whole: true,
}

// short is for every test run. The bound is full's without what the intervals
// are shorter by; the data plane's watchdog climbs at the same pace.
var short = scale{
	probe: 2 * time.Second, ack: time.Second, sourceCheck: 4 * time.Second, outage: 8 * time.Second, late: 2 * time.Second,
	heal: 12 * time.Second, watch: 2 * time.Second,
}

// slack is how late the audit's poll and a busy machine may be.
const slack = time.Second

// blind is how long the audit may call a node fresh whose traffic is wrong.
func (s scale) blind() time.Duration { return s.probe + s.ack + slack }
