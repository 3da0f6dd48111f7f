// Package envoyaudit compares what a running Envoy has, by its admin
// endpoint's /config_dump?include_eds and /clusters?format=json, with what a
// control plane says that it should have, by its /resources.
//
// Contents are compared, field by field, and versions only say more about a
// difference: two builds of the control plane may give one content two
// versions, and in state-of-the-world Envoy knows a version of a whole type only.
//
//	CDS  dynamic_active_clusters and dynamic_warming_clusters, where the
//	     bootstrap takes clusters from a control plane (cds_config)
//	LDS  dynamic_listeners: active_state, warming_state, error_state, where the
//	     bootstrap takes listeners from a control plane (lds_config). One that
//	     only drains is on its way out, and no difference
//	RDS  dynamic_route_configs. Needed are those that the listeners name which
//	     Envoy should have, and that the control plane has. One that is not needed
//	     may be there as long as the control plane has it: a draining listener still uses it
//	EDS  for each cluster in use that takes its assignment over ADS, endpoint by
//	     endpoint. /clusters tells what the load balancer uses: address, priority,
//	     locality, weight, health by EDS, host name; /config_dump adds the metadata, and the
//	     localities' weights. Health as Envoy found it itself (checks, outliers)
//	     is no difference. policy is not visible in Envoy, and not compared
//
// What the bootstrap has itself is never a difference. Text that Envoy shows as
// "[redacted]" counts as equal. Types other than these four are not compared.
//
// Everything here is a pure function of its arguments.
package envoyaudit
