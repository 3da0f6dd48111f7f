package main

import (
	"context"
	"fmt"
	"net"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/internal/version"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/auditlog"
	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/kube"
	"github.com/freshmesh/freshmesh/pkg/manifest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func serve(ctx context.Context, p program.Process, args []string) int {
	c, result, err := config.LoadServer(args, p.LookupEnv)
	if err == nil && (result.Action == config.Run || result.Action == config.Check) && c.Source == config.FromKubeconfig {
		err = kube.Config{Kubeconfig: c.Kubeconfig}.Check()
	}
	if code, run := p.Configured(result, err); !run {
		return code
	}
	return p.Run(ctx, c.Log, result.Warnings, func(ctx context.Context, log hclog.Logger) error {
		return runServer(ctx, c, log)
	})
}

// runServer runs the control plane that c describes until ctx ends.
func runServer(ctx context.Context, c config.Server, log hclog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	source, err := sourceOf(c, log, registry)
	if err != nil {
		return err
	}
	xdsListener, err := net.Listen("tcp", c.XDSAddress)
	if err != nil {
		return fmt.Errorf("xDS address: %w", err)
	}
	adminListener, err := net.Listen("tcp", c.AdminAddress)
	if err != nil {
		xdsListener.Close()
		return fmt.Errorf("admin address: %w", err)
	}
	return controlplane.New(controlplane.Config{
		Source: source, Static: staticOf(c, log), ClusterDomain: c.ClusterDomain,
		Policy:     ack.Policy{ProbeInterval: c.ProbeInterval, AckTimeout: c.AckTimeout},
		MaxStreams: c.MaxStreams, MaxNames: c.MaxSubscriptions, MaxRequestBytes: c.MaxRequestBytes,
		MaxNodeStreams: c.MaxNodeStreams, MaxNodeBytes: c.MaxNodeBytes,
		DrainSettle:  c.DrainSettle,
		HistoryLimit: c.HistoryLimit, AuditLog: auditLogOf(c, log, registry),
		Build: version.String(), Pprof: c.Pprof, Channelz: c.Channelz, Logger: log, Registry: registry,
	}).Run(ctx, xdsListener, adminListener)
}

func sourceOf(c config.Server, log hclog.Logger, registry prometheus.Registerer) (mesh.Source, error) {
	if c.Source == config.FromManifests {
		return manifest.New(manifest.Config{Dir: c.Manifests, Logger: log}), nil
	}
	return kube.New(kube.Config{
		Kubeconfig: c.Kubeconfig, CheckInterval: c.SourceCheckInterval, Logger: log, Registerer: registry,
	})
}

// staticOf gives nil where no directory of static resources is named.
func staticOf(c config.Server, log hclog.Logger) *static.Source {
	if c.StaticResources == "" {
		return nil
	}
	return static.New(static.Config{Dir: c.StaticResources, Logger: log.Named("static")})
}

// auditLogOf gives nil where no file is named.
func auditLogOf(c config.Server, log hclog.Logger, registry *prometheus.Registry) *auditlog.Log {
	if c.AuditLog == "" {
		return nil
	}
	return auditlog.New(auditlog.Config{
		Path: c.AuditLog, MaxBytes: int64(c.AuditLogMaxBytes), MaxFiles: c.AuditLogMaxFiles,
		Logger: log.Named("auditlog"), Registerer: registry,
	})
}
