package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/spf13/pflag"
)

// Exit codes of Explain.
const (
	// ExitTold: the story is told, and the node holds the current form.
	ExitTold = 0
	// ExitNotCurrent: it is told, and the node does not, or is not connected, or
	// does not subscribe to the cluster, or the node or the cluster is not known.
	ExitNotCurrent = 1
	// ExitNotAsked: the server that may know could not be asked.
	ExitNotAsked = 2
)

var explainFormats = []string{Table, JSON}

// ExplainOptions are what the command line of "explain" says.
type ExplainOptions struct {
	// Servers are base URLs of admin addresses, each once; none means replicas.Default.
	Servers []string
	Node    mesh.NodeID
	Cluster string
	// Endpoint is IP:PORT, or "" for the cluster as a whole.
	Endpoint string
	// Output is Table or JSON.
	Output string
	// Lookup may be nil.
	Lookup replicas.Lookup
}

// ParseExplain reads the arguments after "explain". The error is pflag.ErrHelp when
// help was asked for, and the usage has been written to usage then.
func ParseExplain(args []string, usage io.Writer) (ExplainOptions, error) {
	var o ExplainOptions
	flags := pflag.NewFlagSet("explain", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server explain --node ID --cluster NAME [--endpoint IP:PORT] [flags]\n\nTells how a node came to what it holds of a cluster: which event changed it, when that was\npublished, sent and acknowledged. Exit code 0: told, and the node holds the current form, 1: it does not,\nor node or cluster is not known, 2: could not ask.\n\n%s", flags.FlagUsages())
	}
	replicas.Flag(flags, &o.Servers)
	flags.StringVar((*string)(&o.Node), "node", "", "the node's `ID`")
	flags.StringVar(&o.Cluster, "cluster", "", "the cluster's `NAME`, or the beginning of it: echo, echo.default, echo.default:8080")
	flags.StringVar(&o.Endpoint, "endpoint", "", "one endpoint of it, `IP:PORT`")
	flags.StringVarP(&o.Output, "output", "o", Table, "`FORMAT`: "+strings.Join(explainFormats, ", "))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, o.complete()
}

func (o *ExplainOptions) complete() error {
	switch {
	case o.Node == "":
		return errors.New("--node: missing")
	case o.Cluster == "":
		return errors.New("--cluster: missing")
	case o.Endpoint != "" && !strings.Contains(o.Endpoint, ":"):
		return fmt.Errorf("--endpoint %q: want IP:PORT", o.Endpoint)
	case !slices.Contains(explainFormats, o.Output):
		return fmt.Errorf("--output %q: one of %s", o.Output, strings.Join(explainFormats, ", "))
	}
	var err error
	o.Servers, err = replicas.Servers(o.Servers)
	return err
}

// ExplainMain is the whole command "explain": ParseExplain, then Explain.
func ExplainMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := ParseExplain(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ExitTold
	case err != nil:
		fmt.Fprintf(stderr, "xds-server explain: %v\n", err)
		return ExitNotAsked
	}
	return Explain(ctx, o, stdout, stderr)
}

// storyAnswer is what one server told.
type storyAnswer struct {
	server string
	story  history.Story
	err    error
}

// Explain asks, prints to stdout what the servers tell that have the node, says to
// stderr which could not be asked, and gives the exit code. As JSON it is the list of
// all stories, in the order of the servers.
func Explain(ctx context.Context, o ExplainOptions, stdout, stderr io.Writer) int {
	c := &client{replicas.NewClient()}
	defer c.Close()
	servers := replicas.Expand(ctx, o.Lookup, o.Servers)
	told := make([]storyAnswer, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() {
			told[i] = storyAnswer{server: server.URL, err: server.Err}
			if server.Err == nil {
				told[i].story, told[i].err = c.explain(ctx, server.URL, o)
			}
		})
	}
	wg.Wait()
	failed := 0
	for _, t := range told {
		if t.err != nil {
			failed++
			fmt.Fprintf(stderr, "xds-server explain: %s: %v\n", t.server, t.err)
		}
	}
	good := slices.DeleteFunc(slices.Clone(told), func(t storyAnswer) bool { return t.err != nil })
	if len(good) == 0 {
		return ExitNotAsked
	}
	best, code := pick(good)
	if failed > 0 && !connected(best) {
		code = ExitNotAsked // one of those may have the node
	}
	text := []byte(stories(best, len(servers) > 1))
	if o.Output == JSON {
		text = storiesJSON(good)
	}
	if _, err := stdout.Write(text); err != nil {
		fmt.Fprintf(stderr, "xds-server explain: write: %v\n", err)
		return ExitNotAsked
	}
	return code
}

func (c *client) explain(ctx context.Context, server string, o ExplainOptions) (history.Story, error) {
	q := url.Values{"node": {string(o.Node)}, "cluster": {o.Cluster}}
	if o.Endpoint != "" {
		q.Set("endpoint", o.Endpoint)
	}
	body, err := c.Get(ctx, server+"/explain?"+q.Encode())
	if err != nil {
		return history.Story{}, err
	}
	var s history.Story
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("answer is no story: %w", err)
	}
	if s.Time.IsZero() || s.Verdict == "" {
		return s, errors.New("answer is no story: it has no time or no verdict")
	}
	return s, nil
}

// pick gives the stories worth telling, and the exit code: those of the servers
// that the node is connected to; else of those that know it; else of one.
func pick(good []storyAnswer) ([]storyAnswer, int) {
	if here := having(good, func(s history.Story) bool {
		return s.Verdict != history.NodeUnknown && s.Verdict != history.Disconnected && s.State != nil && s.State.Streams > 0
	}); len(here) > 0 {
		for _, t := range here {
			if t.story.Verdict != history.Current {
				return here, ExitNotCurrent
			}
		}
		return here, ExitTold
	}
	if before := having(good, func(s history.Story) bool { return s.Verdict != history.NodeUnknown }); len(before) > 0 {
		return before, ExitNotCurrent
	}
	return good[:1], ExitNotCurrent
}

func having(all []storyAnswer, f func(history.Story) bool) []storyAnswer {
	return slices.DeleteFunc(slices.Clone(all), func(t storyAnswer) bool { return !f(t.story) })
}

func connected(best []storyAnswer) bool {
	return len(best) > 0 && best[0].story.State != nil && best[0].story.State.Streams > 0
}
