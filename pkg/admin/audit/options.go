package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/spf13/pflag"
)

// Exit codes of Run and Main.
const (
	ExitFresh    = 0
	ExitNotFresh = 1
	ExitUnknown  = 2
)

// The output formats.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

var formats = []string{Table, Wide, JSON, YAML}

// Options are what the command line says.
type Options struct {
	// Servers are base URLs of admin addresses, each once; none means replicas.Default.
	Servers []string
	// Node limits the audit to one node; "" for all.
	Node mesh.NodeID
	// Output is one of Table, Wide, JSON, YAML; "" means Table.
	Output string
	// Wait is how long to ask again until the exit code is ExitFresh; 0 asks once.
	Wait time.Duration
	// AllowEmpty makes an audit without any node a success.
	AllowEmpty bool
	// EnvoyAdmins are base URLs of the admin addresses of running Envoys, to
	// compare with what the servers say that they should have.
	EnvoyAdmins []string
	// Lookup gives the addresses of a server's name; nil means the system's resolver.
	Lookup replicas.Lookup
	// Colour colours the states of a table.
	Colour bool
}

// Parse reads the arguments after "audit". The error is pflag.ErrHelp when help
// was asked for, and the usage has been written to usage then.
func Parse(args []string, usage io.Writer) (Options, error) {
	var o Options
	flags := pflag.NewFlagSet("audit", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server audit [flags]\n\nShows what every node holds. Exit code 0: all connected nodes are fresh\n(one that has disconnected does not count), 1: not all, or none is connected, or servers disagree,\nor an Envoy has something else, 2: could not ask.\n\n%s", flags.FlagUsages())
	}
	replicas.Flag(flags, &o.Servers)
	flags.StringVar((*string)(&o.Node), "node", "", "only the node with this `ID`")
	flags.StringVarP(&o.Output, "output", "o", Table, "`FORMAT`: "+strings.Join(formats, ", "))
	flags.DurationVar(&o.Wait, "wait", 0, "ask again for so long until all nodes are fresh")
	flags.BoolVar(&o.AllowEmpty, "allow-empty", false, "succeed when no node is connected")
	flags.StringArrayVar(&o.EnvoyAdmins, "envoy-admin", nil, "admin `URL` of a running Envoy: compare what it has with what it should have; repeat it for each")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, o.complete()
}

// complete checks o and fills in what is left out.
func (o *Options) complete() error {
	if o.Output == "" {
		o.Output = Table
	}
	if !slices.Contains(formats, o.Output) {
		return fmt.Errorf("--output %q: one of %s", o.Output, strings.Join(formats, ", "))
	}
	if o.Wait < 0 {
		return errors.New("--wait must not be negative")
	}
	var err, err2 error
	o.Servers, err = replicas.Servers(o.Servers)
	o.EnvoyAdmins, err2 = replicas.BaseURLs("--envoy-admin", o.EnvoyAdmins)
	return cmp.Or(err, err2)
}
