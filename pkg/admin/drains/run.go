package drains

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/spf13/pflag"
)

// Exit codes of Run and Main.
const (
	ExitDrained    = 0
	ExitNotDrained = 1
	ExitUnknown    = 2
)

const (
	// roundTime bounds one question, pause lies between two.
	roundTime = 5 * time.Second
	pause     = 500 * time.Millisecond
	// answerTime is for what an answer needs beyond the time that it may wait.
	answerTime = 5 * time.Second
)

// Options are what the command line says.
type Options struct {
	// Servers are base URLs of admin addresses; none means replicas.Default.
	Servers []string
	// Namespace and Pod, or Endpoint (IP:PORT).
	Namespace, Pod, Endpoint string
	Timeout                  time.Duration
	// Lookup may be nil.
	Lookup replicas.Lookup
}

// Parse reads the arguments after "drain". The error is pflag.ErrHelp when help
// was asked for, and the usage has been written to usage then.
func Parse(args []string, usage io.Writer) (Options, error) {
	var o Options
	var pod string
	flags := pflag.NewFlagSet("drain", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server drain (--pod NS/NAME | --endpoint IP:PORT) [flags]\n\nWaits until no proxy uses a pod or an endpoint. Exit code 0: all servers say so,\n"+
			"1: not within the timeout, 2: a server could not be asked.\n\n%s", flags.FlagUsages())
	}
	replicas.Flag(flags, &o.Servers)
	flags.StringVar(&pod, "pod", "", "the pod, `NS/NAME`")
	flags.StringVar(&o.Endpoint, "endpoint", "", "the endpoint, `IP:PORT`")
	flags.DurationVar(&o.Timeout, "timeout", drain.DefaultTimeout, "how long to wait")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if pod != "" {
		var ok bool
		if o.Namespace, o.Pod, ok = strings.Cut(pod, "/"); !ok || o.Namespace == "" || o.Pod == "" || strings.Contains(o.Pod, "/") {
			return o, fmt.Errorf("--pod %q: want NS/NAME", pod)
		}
	}
	return o, o.complete()
}

func (o *Options) complete() error {
	switch {
	case (o.Pod == "") == (o.Endpoint == ""):
		return errors.New("give --pod NS/NAME or --endpoint IP:PORT")
	case o.Timeout < 0 || o.Timeout > drain.MaxTimeout:
		return fmt.Errorf("--timeout %v: 0s to %v", o.Timeout, drain.MaxTimeout)
	}
	if _, ok := drain.EndpointOf(o.Endpoint); o.Endpoint != "" && !ok {
		return fmt.Errorf("--endpoint %q: want IP:PORT", o.Endpoint)
	}
	var err error
	o.Servers, err = replicas.Servers(o.Servers)
	return err
}

// Main is the whole command: Parse, then Run.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := Parse(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ExitDrained
	case err != nil:
		fmt.Fprintf(stderr, "xds-server drain: %v\n", err)
		return ExitUnknown
	}
	return Run(ctx, o, stdout, stderr)
}

// answer is what one server said; err says why it could not be asked.
type answer struct {
	server string
	report drain.Report
	err    error
}

// Run waits, prints what the servers said last, and gives the exit code.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) int {
	if err := o.complete(); err != nil {
		fmt.Fprintf(stderr, "xds-server drain: %v\n", err)
		return ExitUnknown
	}
	client := replicas.NewClient()
	defer client.Close()
	last := wait(ctx, client, o)
	for _, a := range last {
		if a.err != nil {
			fmt.Fprintf(stderr, "xds-server drain: %s: %v\n", a.server, a.err)
			continue
		}
		show(stdout, a)
	}
	return judge(last)
}

func judge(all []answer) int {
	code := ExitDrained
	for _, a := range all {
		switch {
		case a.err != nil:
			return ExitUnknown
		case !a.report.Drained:
			code = ExitNotDrained
		}
	}
	if len(all) == 0 {
		return ExitUnknown
	}
	return code
}

// wait gives the last answers: those that say drained, or those at the timeout.
func wait(ctx context.Context, client *replicas.Client, o Options) []answer {
	end := time.Now().Add(o.Timeout)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		all := round(ctx, client, o, min(max(time.Until(end), 0), roundTime))
		if judge(all) == ExitDrained || !time.Now().Add(pause).Before(end) {
			return all
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return all
		}
	}
}

func round(ctx context.Context, client *replicas.Client, o Options, left time.Duration) []answer {
	servers := replicas.Expand(ctx, o.Lookup, o.Servers)
	out := make([]answer, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		out[i] = answer{server: s.URL, err: s.Err}
		if s.Err == nil {
			wg.Go(func() { out[i].report, out[i].err = ask(ctx, client, s.URL, o, left) })
		}
	}
	wg.Wait()
	return out
}

// ask asks one server. Only what is a report is one: something else at that
// address must not pass for a mesh that is drained.
func ask(ctx context.Context, client *replicas.Client, server string, o Options, left time.Duration) (drain.Report, error) {
	q := url.Values{"timeout": {left.String()}}
	if o.Pod != "" {
		q.Set("namespace", o.Namespace)
		q.Set("pod", o.Pod)
	} else {
		q.Set("endpoint", o.Endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, left+answerTime)
	defer cancel()
	code := http.StatusOK
	body, err := client.Get(ctx, server+"/drain?"+q.Encode())
	if refused, ok := errors.AsType[*replicas.StatusError](err); ok && refused.Code == http.StatusGatewayTimeout {
		code, body, err = refused.Code, refused.Body, nil // who still uses it
	}
	if err != nil {
		return drain.Report{}, err
	}
	var r drain.Report
	if err := json.Unmarshal(body, &r); err != nil || r.Target == "" || r.Drained != (code == http.StatusOK) {
		return r, fmt.Errorf("answered %d, which is no report of a drain", code)
	}
	return r, nil
}

func show(w io.Writer, a answer) {
	r := a.report
	if r.Drained {
		fmt.Fprintf(w, "%s: %s is drained\n", a.server, replicas.Printable(r.Target))
		return
	}
	fmt.Fprintf(w, "%s: %s is not drained\n", a.server, replicas.Printable(r.Target))
	for _, v := range r.Waits {
		parts := []string{string(v.Reason), cmp.Or(string(v.Node), "-"), cmp.Or(v.Cluster, "-"), cmp.Or(v.Endpoint, "-")}
		if !v.Since.IsZero() {
			parts = append(parts, "since "+v.Since.UTC().Format(time.RFC3339))
		}
		if v.Detail != "" {
			parts = append(parts, "("+v.Detail+")")
		}
		for _, part := range parts {
			fmt.Fprint(w, "  ", replicas.Printable(part))
		}
		fmt.Fprintln(w)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.LeftOut)
	}
}
