package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/freshmesh/freshmesh/pkg/kube"
)

// The exit codes of Main.
const (
	exitOK      = 0
	exitMissing = 1
	exitUnknown = 2
)

// options are what the command line says.
type options struct {
	// Kubeconfig "" takes the service account of the pod that the program runs in.
	Kubeconfig, Context string
	// Namespace is where freshmesh is installed.
	Namespace string
	// Output is text or json.
	Output  string
	Timeout time.Duration
}

// Main is the whole command; args are those after "check".
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		var report *Report
		if report, err = run(ctx, o); report != nil {
			write := report.text
			if o.Output == "json" {
				write = report.json
			}
			err = errors.Join(err, write(stdout))
			if err == nil && report.Missing > 0 {
				return exitMissing
			}
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "xds-server check: %v\n", err)
		return exitUnknown
	}
	return exitOK
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("check", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server check [flags]\n\nLooks at a cluster and says what is missing, and what helps. It changes nothing. Exit code 0: nothing\n"+
			"is missing, 1: something is, 2: the cluster could not be asked, or the command line is wrong.\n\n%s", flags.FlagUsages())
	}
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster; without it, the cluster that this runs in")
	flags.StringVar(&o.Context, "context", "", "`name` of the kubeconfig's context; without it, its current one")
	flags.StringVarP(&o.Namespace, "namespace", "n", "freshmesh", "`namespace` that freshmesh is installed in")
	flags.StringVarP(&o.Output, "output", "o", "text", "`FORMAT`: text or json")
	flags.DurationVar(&o.Timeout, "timeout", 30*time.Second, "how long all of it may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.Output != "text" && o.Output != "json":
		return o, fmt.Errorf("--output %q: want text or json", o.Output)
	case o.Timeout <= 0:
		return o, fmt.Errorf("--timeout %v: must be greater than 0", o.Timeout)
	}
	return o, nil
}

// checker is one run.
type checker struct {
	options
	report *Report
	server string
	http   *http.Client
	base   string // the server's URL
	client kubernetes.Interface
}

// run looks at the cluster. The error is for a cluster that cannot be asked at
// all; the Report is nil then.
func run(ctx context.Context, o options) (*Report, error) {
	config, err := kube.RESTConfig(kube.Config{Kubeconfig: o.Kubeconfig, Context: o.Context})
	if err != nil {
		return nil, err
	}
	config.UserAgent = "freshmesh-xds-server"
	config.WarningHandler = rest.NoWarnings{}
	config.QPS = -1                                                                        // a few dozen requests, one after the other
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json" // what every server speaks
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	raw, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	defer raw.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	c := &checker{options: o, report: &Report{Server: base.Host}, server: base.Host, http: raw, base: base.String(), client: client}
	if err := c.checkServer(ctx); err != nil {
		return nil, err
	}
	c.checkAPI(ctx)
	c.checkRights(ctx)
	c.checkInstall(ctx)
	c.checkInjection(ctx)
	c.checkPorts(ctx)
	return c.report, ctx.Err()
}

// unknown notes what could not be judged, and why.
func (c *checker) unknown(check, what string, err error) {
	c.report.add(check, Warning, "Give the user of this kubeconfig the right to "+what+", or ask somebody who has it.",
		"not known: %s", kube.Explain(err, what, c.server))
}
