// Command dataplane is the proxy: it sends requests to the endpoints that an
// xds-server gives it. `dataplane redirect` leads a pod's connections to it.
package main

import (
	"context"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/internal/version"
	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane/redirect"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func main() {
	os.Exit(run(context.Background(), program.This("dataplane"), os.Args[1:]))
}

func run(ctx context.Context, p program.Process, args []string) int {
	if len(args) > 0 && args[0] == "redirect" {
		return redirect.Main(args[1:], p.Stdout, p.Stderr)
	}
	c, result, err := config.LoadDataplane(args, p.LookupEnv)
	if code, run := p.Configured(result, err); !run {
		return code
	}
	return p.Run(ctx, c.Log, result.Warnings, func(ctx context.Context, log hclog.Logger) error {
		return runProxy(ctx, c, log)
	})
}

// silence is how much longer than the server's probe interval it may say nothing.
const silence = 2 * time.Second

// runProxy runs the proxy that c describes until ctx ends and in-flight work is done.
func runProxy(ctx context.Context, c config.Dataplane, log hclog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	listens := make([]dataplane.Listen, 0, len(c.Listen))
	for _, l := range c.Listen {
		listens = append(listens, dataplane.Listen{Address: l.Address, Cluster: l.Cluster, HTTP: l.Protocol == config.HTTP, ProxyHeader: l.ProxyHeader})
	}
	proxy, err := dataplane.New(dataplane.Config{
		NodeID: mesh.NodeID(c.NodeID), XDSAddresses: c.XDSAddresses,
		Namespace: c.Namespace, ClusterDomain: c.ClusterDomain,
		Pod: c.Pod, KubernetesNode: c.NodeName, Region: c.Region, Zone: c.Zone, Version: version.String(),
		OutboundAddress: c.OutboundAddress, InboundAddress: c.InboundAddress, AdminAddress: c.AdminAddress, HealthAddress: c.HealthAddress,
		Listens: listens, StateDir: c.StateDir, DrainTime: c.DrainTime,
		Transparent: c.Transparent, OpaquePorts: append([]uint16{}, c.OpaquePorts...), SkipPorts: c.SkipPorts,
		RefuseUnknown: c.UnknownDestinations == config.Refuse, Limits: limits(c.Limits),
		FailFast: c.FailFast, FailFastInbound: c.FailFastInbound,
		DiscoveryMaxAge: c.DiscoveryMaxAge, SilenceTimeout: c.ProbeInterval + silence,
		MaxConnectionAge: c.MaxConnectionAge, MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
		MaxActiveRequests: c.MaxActiveRequests, MaxRequestBytes: int64(c.MaxRequestBytes), AccessLog: c.AccessLog, Pprof: c.Pprof,
		Logger: log, Registry: registry,
	})
	if err != nil {
		return err
	}
	return proxy.Run(ctx)
}

func limits(l config.Limits) dataplane.Limits {
	return dataplane.Limits{
		Connections: l.Connections, HeaderBytes: l.HeaderBytes, HeaderCount: l.HeaderCount,
		HeaderTime: l.HeaderTime, BodyIdle: l.BodyIdle, WriteIdle: l.WriteIdle, TCPIdle: l.TCPIdle, Memory: l.MemoryBytes,
	}
}
