// Command dataplane is the proxy: it sends requests to the endpoints that an
// xds-server gives it.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/hashicorp/go-hclog"
)

func main() {
	os.Exit(run(context.Background(), program.This("dataplane"), os.Args[1:]))
}

func run(ctx context.Context, p program.Process, args []string) int {
	c, result, err := config.LoadDataplane(args, p.LookupEnv)
	if code, run := p.Configured(result, err); !run {
		return code
	}
	return p.Run(ctx, c.Log, result.Warnings, func(ctx context.Context, log hclog.Logger) error {
		return connectDataplane(ctx, c, log)
	})
}

// WIRING: connectDataplane makes the proxy from its configuration and runs it
// until ctx ends and in-flight work is done. dataplane.New and Run take the
// place of the error.
func connectDataplane(_ context.Context, _ config.Dataplane, _ hclog.Logger) error {
	return errors.New("the proxy is not connected yet")
}
