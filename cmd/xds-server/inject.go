package main

import (
	"context"
	"os"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/inject"
)

func injectProxy(_ context.Context, p program.Process, args []string) int {
	return inject.Main(args, os.Stdin, p.Stdout, p.Stderr)
}
