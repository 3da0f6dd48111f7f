package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/freshmesh/freshmesh/pkg/config"
	"sigs.k8s.io/yaml"
)

// options are what the command line gives.
type options struct {
	configs, bin                                                 string
	build                                                        bool
	xdsAddress, adminAddress, proxyAdminAddress, outboundAddress string
	logLevel                                                     string

	out, log io.Writer
	signals  <-chan os.Signal
}

// program is one process to start.
type program struct {
	name    string
	command string
	args    []string
	// listens are the addresses that it will want.
	listens []string
	// essential programs take the mesh down with them when they end.
	essential bool
	// ready is the URL that answers 200 once it works.
	ready string
}

// plan is the mesh to start, in order.
type plan struct {
	manifests string
	server    config.Server
	dataplane config.Dataplane
	backends  []backend
	programs  []program
}

// backend is one entry of backends.yaml.
type backend struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Lines   string `json:"lines"`
}

// newPlan reads the directory of configurations. The programs' own files are
// read as the programs will read them, so that there is one home for each address.
func newPlan(o options) (*plan, error) {
	p := &plan{manifests: filepath.Join(o.configs, "manifests")}
	data, err := os.ReadFile(filepath.Join(o.configs, "backends.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &p.backends); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.configs, "backends.yaml"), err)
	}
	for _, b := range p.backends {
		p.programs = append(p.programs, b.program(o))
	}
	serverArgs := given("--config", filepath.Join(o.configs, "xds-server.yaml"), "--manifests", p.manifests, "--log-level", o.logLevel,
		"--xds-address", o.xdsAddress, "--admin-address", o.adminAddress)
	if p.server, _, err = config.LoadServer(serverArgs, os.LookupEnv); err != nil {
		return nil, err
	}
	proxyArgs := given("--config", filepath.Join(o.configs, "dataplane.yaml"), "--log-level", o.logLevel,
		"--xds-address", o.xdsAddress, "--admin-address", o.proxyAdminAddress, "--outbound-address", o.outboundAddress)
	if p.dataplane, _, err = config.LoadDataplane(proxyArgs, os.LookupEnv); err != nil {
		return nil, err
	}
	proxyListens := []string{p.dataplane.AdminAddress, p.dataplane.OutboundAddress}
	for _, l := range p.dataplane.Listen {
		proxyListens = append(proxyListens, l.Address)
	}
	if p.dataplane.HealthAddress != "" {
		proxyListens = append(proxyListens, p.dataplane.HealthAddress)
	}
	p.programs = append(p.programs, program{
		name: "xds-server", command: filepath.Join(o.bin, "xds-server"), args: append([]string{"serve"}, serverArgs...),
		listens: []string{p.server.XDSAddress, p.server.AdminAddress}, essential: true,
		ready: "http://" + p.server.AdminAddress + "/readyz",
	}, program{
		name: "dataplane", command: filepath.Join(o.bin, "dataplane"), args: proxyArgs,
		listens: proxyListens, essential: true,
		ready: "http://" + p.dataplane.AdminAddress + "/ready",
	})
	return p, nil
}

func (b backend) program(o options) program {
	p := program{
		name: b.Name, command: filepath.Join(o.bin, "echo"),
		args:    given("--name", b.Name, "--address", b.Address, "--lines", b.Lines),
		listens: []string{b.Address}, ready: "http://" + b.Address + "/",
	}
	if b.Lines != "" {
		p.listens = append(p.listens, b.Lines)
	}
	return p
}

// given gives the pairs of flag and value without those whose value is empty.
func given(pairs ...string) []string {
	var args []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			args = append(args, pairs[i], pairs[i+1])
		}
	}
	return args
}
