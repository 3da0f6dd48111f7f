package main

import (
	"context"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/admin/drains"
)

func drain(ctx context.Context, p program.Process, args []string) int {
	return drains.Main(ctx, args, p.Stdout, p.Stderr)
}
