package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/spf13/pflag"
)

// Main is the whole command: Parse, then Run. Colours are for terminals, and
// only where NO_COLOR (no-color.org) is not set.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := Parse(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ExitFresh
	case err != nil:
		fmt.Fprintf(stderr, "xds-server audit: %v\n", err)
		return ExitUnknown
	}
	o.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(stdout)
	return Run(ctx, o, stdout, stderr)
}

// terminal tells whether w is a character device.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Run asks, prints to stdout, says to stderr what went wrong, and gives the
// exit code. With Wait, it asks until that is 0, the time is over or ctx ends, and prints the last answer.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) int {
	if err := o.complete(); err != nil {
		fmt.Fprintf(stderr, "xds-server audit: %v\n", err)
		return ExitUnknown
	}
	if o.EnvoyAdmin != "" {
		fmt.Fprintln(stderr, "xds-server audit: --envoy-admin is not used yet: what Envoy itself reports is not compared")
	}
	c := newClient()
	defer c.close()
	answers := poll(ctx, c, o)
	code := judge(o, answers)
	var good []ack.Audit
	for _, a := range answers {
		if a.err != nil {
			fmt.Fprintf(stderr, "xds-server audit: %s: %v\n", a.server, a.err)
			continue
		}
		good = append(good, a.audit)
	}
	if len(good) == 0 {
		return code
	}
	if err := write(stdout, o, Merge(good)); err != nil {
		fmt.Fprintf(stderr, "xds-server audit: write: %v\n", err)
		return ExitUnknown
	}
	return code
}

// answer is what one server said; err says why it could not be asked.
type answer struct {
	server string
	audit  ack.Audit
	err    error
}

// The pause between two polls doubles from the first to the last of these.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// poll gives the last answers, in the order of o.Servers.
func poll(ctx context.Context, c *client, o Options) []answer {
	end := time.Now().Add(o.Wait)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		answers := askAll(ctx, c, o)
		left := time.Until(end)
		if left <= 0 || judge(o, answers) == ExitFresh {
			return answers
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answers
		}
	}
}

func askAll(ctx context.Context, c *client, o Options) []answer {
	answers := make([]answer, len(o.Servers))
	var wg sync.WaitGroup
	for i, server := range o.Servers {
		wg.Go(func() {
			audit, err := c.ask(ctx, server, o.Node)
			answers[i] = answer{server, audit, err}
		})
	}
	wg.Wait()
	return answers
}

// judge gives the exit code.
func judge(o Options, answers []answer) int {
	code, good := ExitFresh, make([]ack.Audit, 0, len(answers))
	for _, a := range answers {
		if a.err != nil {
			return ExitUnknown
		}
		if !a.audit.Server.Synced {
			code = ExitNotFresh
		}
		good = append(good, a.audit)
	}
	s := Merge(good).Summary
	if s.Fresh+s.Disconnected < s.Nodes || (s.Nodes == 0 && !o.AllowEmpty) {
		code = ExitNotFresh
	}
	return code
}
