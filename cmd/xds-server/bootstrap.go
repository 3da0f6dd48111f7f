package main

import (
	"context"

	"github.com/freshmesh/freshmesh/internal/program"
	bootstrapper "github.com/freshmesh/freshmesh/pkg/bootstrap"
)

func bootstrap(_ context.Context, p program.Process, args []string) int {
	return bootstrapper.Main(args, p.Stdout, p.Stderr)
}
