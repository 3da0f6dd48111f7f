// Command xds-server is the control plane: it serves xDS from Kubernetes
// objects, and answers what each node holds.
package main

import (
	"context"
	"os"

	"github.com/freshmesh/freshmesh/internal/program"
)

func main() {
	os.Exit(run(context.Background(), program.This("xds-server"), os.Args[1:]))
}

func run(ctx context.Context, p program.Process, args []string) int {
	return p.Dispatch(ctx, args, []program.Command{
		{Name: "serve", Short: "serve xDS", Run: serve},
		{Name: "audit", Short: "show what each node holds, and whether it is current", Run: audit},
		{Name: "explain", Short: "tell how a node came to what it holds of a cluster", Run: explain},
		{Name: "drain", Short: "wait until no proxy uses a pod or an endpoint", Run: drain},
		{Name: "bootstrap", Short: "write the bootstrap of an Envoy or of a gRPC client", Run: bootstrap},
		{Name: "inject", Short: "add the proxy to the workloads among YAML documents", Run: injectProxy},
		{Name: "check", Short: "look at a cluster and say what is missing", Run: check},
	})
}
