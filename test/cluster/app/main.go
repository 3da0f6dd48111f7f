// Command app is the application of the cluster tests: a backend that says who
// answers, over HTTP/1.1, WebSocket, gRPC and TCP (app serve), and clients of it
// that never send anything twice (app load). Both are programs in containers.
//
// A backend that is to end (SIGTERM) takes no new connections, finishes what is
// in flight, and says "bye" on whatever is long-lived; a client that hears it closes
// and begins anew. So nothing is lost by the application itself.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("serve, load or crash")
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:])
	case "load":
		return load(ctx, args[1:])
	default:
		return fmt.Errorf("%s: serve or load", args[0])
	}
}
