package main

import (
	"context"

	"github.com/freshmesh/freshmesh/internal/program"
	auditclient "github.com/freshmesh/freshmesh/pkg/admin/audit"
)

func audit(ctx context.Context, p program.Process, args []string) int {
	return auditclient.Main(ctx, args, p.Stdout, p.Stderr)
}
