package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
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
	c := &client{replicas.NewClient()}
	defer c.Close()
	last := poll(ctx, c, o)
	code := judge(o, last)
	var good []ack.Audit
	for _, a := range last.servers {
		if a.err != nil {
			fmt.Fprintf(stderr, "xds-server audit: %s: %v\n", a.server, a.err)
			continue
		}
		good = append(good, a.audit)
	}
	for _, e := range last.envoys {
		if e.err != nil {
			fmt.Fprintf(stderr, "xds-server audit: envoy %s: %v\n", e.admin, e.err)
		}
	}
	if last.compareErr != nil {
		fmt.Fprintf(stderr, "xds-server audit: compare the servers: %v\n", last.compareErr)
	}
	if len(good) == 0 {
		return code
	}
	m := Merge(good)
	m.Disagreements = last.disagreements
	m.confirm(last.envoys)
	if err := write(stdout, o, m); err != nil {
		fmt.Fprintf(stderr, "xds-server audit: write: %v\n", err)
		return ExitUnknown
	}
	return code
}

// answers are those of all that were asked, each in the order of the options.
type answers struct {
	servers []answer
	envoys  []envoyAnswer
	// disagreements are between servers; compareErr says why they could not be compared.
	disagreements []Disagreement
	compareErr    error
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

// poll gives the last answers.
func poll(ctx context.Context, c *client, o Options) answers {
	end := time.Now().Add(o.Wait)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		all := askAll(ctx, c, o)
		left := time.Until(end)
		if left <= 0 || judge(o, all) == ExitFresh {
			return all
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return all
		}
	}
}

func askAll(ctx context.Context, c *client, o Options) answers {
	found := replicas.Expand(ctx, o.Lookup, o.Servers)
	o.Servers = make([]string, len(found))
	all := answers{servers: make([]answer, len(found)), envoys: make([]envoyAnswer, len(o.EnvoyAdmins))}
	var wg sync.WaitGroup
	for i, r := range found {
		o.Servers[i] = r.URL
		if all.servers[i] = (answer{server: r.URL, err: r.Err}); r.Err != nil {
			continue
		}
		wg.Go(func() {
			audit, err := c.ask(ctx, r.URL, o.Node)
			all.servers[i] = answer{r.URL, audit, err}
		})
	}
	for i, admin := range o.EnvoyAdmins {
		wg.Go(func() {
			report, err := c.inspect(ctx, o, admin)
			all.envoys[i] = envoyAnswer{admin, report, err}
		})
	}
	wg.Wait()
	all.servers = once(all.servers)
	all.disagreements, all.compareErr = c.compare(ctx, all.servers)
	return all
}

// once gives every server that answered once, however many names lead to it.
func once(servers []answer) []answer {
	var out []answer
	for _, a := range servers {
		instance := a.audit.Server.Instance
		if a.err == nil && instance != "" && slices.ContainsFunc(out, func(o answer) bool { return o.err == nil && o.audit.Server.Instance == instance }) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// judge gives the exit code.
func judge(o Options, all answers) int {
	code, good := ExitFresh, make([]ack.Audit, 0, len(all.servers))
	for _, e := range all.envoys {
		if e.err != nil {
			return ExitUnknown
		}
		if !e.report.InEffect {
			code = ExitNotFresh
		}
	}
	if all.compareErr != nil {
		return ExitUnknown
	}
	if len(all.disagreements) > 0 {
		code = ExitNotFresh // a server that is behind has nodes that are
	}
	for _, a := range all.servers {
		if a.err != nil {
			return ExitUnknown
		}
		if !a.audit.Server.Synced {
			code = ExitNotFresh
		}
		good = append(good, a.audit)
	}
	s := Merge(good).Summary
	if s.Fresh+s.Disconnected < s.Nodes || s.Disconnected == s.Nodes && !o.AllowEmpty {
		code = ExitNotFresh
	}
	return code
}
