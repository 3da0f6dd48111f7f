package main

import (
	"context"
	"errors"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/hashicorp/go-hclog"
)

func serve(ctx context.Context, p program.Process, args []string) int {
	c, result, err := config.LoadServer(args, p.LookupEnv)
	if code, run := p.Configured(result, err); !run {
		return code
	}
	return p.Run(ctx, c.Log, result.Warnings, func(ctx context.Context, log hclog.Logger) error {
		return connectServer(ctx, c, log)
	})
}

// WIRING: connectServer makes the control plane from its configuration and
// runs it until ctx ends. controlplane.Run takes the place of the error.
func connectServer(_ context.Context, _ config.Server, _ hclog.Logger) error {
	return errors.New("the control plane is not connected yet")
}
