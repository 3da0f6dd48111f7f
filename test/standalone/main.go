// Command standalone starts a whole mesh on this machine from a directory such
// as configs/standalone: sample backends, xds-server and dataplane, says what to try,
// and stops everything again with Ctrl-C.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	// A child is to die with us, and the kernel ties its life to the thread that started it.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	o := options{out: os.Stdout, log: os.Stderr, signals: signals}
	flags := pflag.NewFlagSet("standalone", pflag.ExitOnError)
	flags.SortFlags = false
	flags.StringVar(&o.configs, "configs", "configs/standalone", "directory with manifests/, backends.yaml, xds-server.yaml and dataplane.yaml")
	flags.StringVar(&o.bin, "bin", "bin", "directory of the programs")
	flags.BoolVar(&o.build, "build", true, "build the programs first")
	flags.StringVar(&o.xdsAddress, "xds-address", "", "xDS address in place of the one in xds-server.yaml and dataplane.yaml")
	flags.StringVar(&o.adminAddress, "admin-address", "", "xds-server's admin address in place of the one in xds-server.yaml")
	flags.StringVar(&o.proxyAdminAddress, "dataplane-admin-address", "", "dataplane's admin address in place of the one in dataplane.yaml")
	flags.StringVar(&o.outboundAddress, "outbound-address", "", "outbound address in place of the one in dataplane.yaml")
	flags.StringVar(&o.logLevel, "log-level", "info", "log level of xds-server and dataplane")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "standalone:", err)
		os.Exit(1)
	}
}
