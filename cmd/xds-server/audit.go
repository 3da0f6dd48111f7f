package main

import (
	"context"
	"errors"

	"github.com/freshmesh/freshmesh/internal/program"
)

// WIRING: audit asks the servers that its arguments name and prints what each
// node holds. The audit client takes the place of the error.
func audit(_ context.Context, p program.Process, _ []string) int {
	p.Complain(errors.New("audit is not connected yet"))
	return program.Usage
}
