package main

import (
	"context"

	"github.com/freshmesh/freshmesh/internal/program"
	auditclient "github.com/freshmesh/freshmesh/pkg/admin/audit"
)

func explain(ctx context.Context, p program.Process, args []string) int {
	return auditclient.ExplainMain(ctx, args, p.Stdout, p.Stderr)
}
