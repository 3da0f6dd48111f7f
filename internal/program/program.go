// Package program is what both programs do around their work: commands,
// signals, the logger, one-line errors and exit codes.
//
// A Process is immutable. Run starts one goroutine, for signals, and waits for
// its end.
package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/freshmesh/freshmesh/internal/logging"
	"github.com/freshmesh/freshmesh/internal/version"
	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/hashicorp/go-hclog"
)

// The exit codes. A command with codes of its own says so in its help; a wrong command line is 2 in all.
const (
	OK = 0
	// Failed: it began to work and could not go on; or the answer is no, as of --check-config.
	Failed = 1
	// Usage: the command line or the configuration is wrong, and nothing was begun.
	Usage = 2
)

// Process is the surroundings of a program.
type Process struct {
	// Name stands before each error.
	Name      string
	LookupEnv func(string) (string, bool)
	Stdout    io.Writer
	Stderr    io.Writer
}

// This gives the surroundings of the running process.
func This(name string) Process {
	return Process{Name: name, LookupEnv: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr}
}

// Complain writes err to Stderr, each of its lines after the program's name.
func (p Process) Complain(err error) {
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, line)
	}
}

// Configured does what a command line asked for beside running. When run is
// false the program ends with code.
func (p Process) Configured(result config.Result, err error) (code int, run bool) {
	if err != nil {
		p.Complain(err)
		if result.Action == config.Check {
			return Failed, false
		}
		return Usage, false
	}
	switch result.Action {
	case config.Print:
		fmt.Fprint(p.Stdout, result.Text)
		return OK, false
	case config.Version:
		p.PrintVersion()
		return OK, false
	case config.Check:
		p.warn(result.Warnings)
		return OK, false
	case config.Run:
	}
	return OK, true
}

// PrintVersion writes "NAME VERSION" to Stdout.
func (p Process) PrintVersion() { fmt.Fprintln(p.Stdout, p.Name, version.String()) }

func (p Process) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(p.Stderr, "%s: warning: %s\n", p.Name, w)
	}
}

// Run does work until it returns, and gives the exit code. Its context ends
// with the first SIGTERM or SIGINT; a second one ends the process at once.
func (p Process) Run(ctx context.Context, c config.Log, warnings []string, work func(context.Context, hclog.Logger) error) int {
	log := logging.New(p.Stderr, p.Name, c)
	logging.Route(log)
	for _, w := range warnings {
		log.Warn("setting without effect", "reason", w)
	}
	ctx, stop := withSignals(ctx, log)
	defer stop()
	log.Info("starting", "version", version.String(), "pid", os.Getpid())
	if err := work(ctx, log); err != nil {
		p.Complain(err)
		return Failed
	}
	log.Info("stopped")
	return OK
}
