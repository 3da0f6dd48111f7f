package main

import (
	"context"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/kube/clustercheck"
)

func check(ctx context.Context, p program.Process, args []string) int {
	return clustercheck.Main(ctx, args, p.Stdout, p.Stderr)
}
