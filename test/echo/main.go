// Command echo is a sample backend that says which endpoint answered: over
// HTTP/1.1, HTTP/2 (prior knowledge) and gRPC on one address, and line by line
// over TCP on another.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var b backend
	flags := pflag.NewFlagSet("echo", pflag.ExitOnError)
	flags.StringVar(&b.name, "name", "echo", "name to answer with")
	flags.StringVar(&b.address, "address", "127.0.0.1:9101", "serve HTTP/1.1, HTTP/2 and gRPC here")
	flags.StringVar(&b.lines, "lines", "", "answer each line of text over TCP here; empty is off")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	if err := b.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "echo: %s: %v\n", b.name, err)
		os.Exit(1)
	}
}
