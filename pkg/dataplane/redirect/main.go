package redirect

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/pflag"
)

// The exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main is the whole command; args are those after "redirect". The exit code is
// 0, 1 when the rules could not be put in force, or 2 for a wrong command line.
func Main(args []string, stdout, stderr io.Writer) int {
	r, remove, err := parse(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "dataplane redirect: %v\n", err)
		return exitUsage
	}
	if remove {
		err = Remove()
	} else {
		err = Apply(r)
	}
	if err != nil {
		fmt.Fprintf(stderr, "dataplane redirect: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func parse(args []string, usage io.Writer) (r Rules, remove bool, err error) {
	r = DefaultRules()
	var skipOut, skipIn, skipUIDs []string
	flags := pflag.NewFlagSet("redirect", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: dataplane redirect [flags]\n\nLeads the TCP connections of this network namespace to the proxy in it, by nftables (needs NET_ADMIN).\n\n%s", flags.FlagUsages())
	}
	flags.Uint32Var(&r.ProxyUID, "proxy-uid", r.ProxyUID, "user `id` of the proxy, whose own connections are left alone")
	flags.Uint16Var(&r.OutboundPort, "outbound-port", r.OutboundPort, "`port` of the proxy's --outbound-address, which has to be on all addresses")
	flags.Uint16Var(&r.InboundPort, "inbound-port", r.InboundPort, "`port` of the proxy's --inbound-address")
	flags.Uint16Var(&r.HealthPort, "health-port", r.HealthPort, "`port` of the proxy's --health-address")
	flags.StringSliceVar(&skipOut, "skip-outbound-ports", nil, "destination `ports` of outbound connections that are left alone")
	flags.StringSliceVar(&skipIn, "skip-inbound-ports", nil, "`ports` whose inbound connections are left alone")
	flags.StringSliceVar(&skipUIDs, "skip-uids", nil, "user `ids` whose connections are left alone")
	flags.BoolVar(&remove, "remove", false, "take the rules away")
	if err := flags.Parse(args); err != nil {
		return r, remove, err
	}
	if flags.NArg() > 0 {
		return r, remove, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var wrong [3]error
	r.SkipOutboundPorts, wrong[0] = numbers[uint16]("--skip-outbound-ports", skipOut, 1, 16)
	r.SkipInboundPorts, wrong[1] = numbers[uint16]("--skip-inbound-ports", skipIn, 1, 16)
	r.SkipUIDs, wrong[2] = numbers[uint32]("--skip-uids", skipUIDs, 0, 32)
	if err := errors.Join(wrong[:]...); err != nil {
		return r, remove, err
	}
	return r, remove, r.validate()
}

func numbers[N uint16 | uint32](flag string, texts []string, least uint64, bits int) ([]N, error) {
	var out []N
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 10, bits)
		if err != nil || n < least {
			return nil, fmt.Errorf("%s: %q is not a number from %d to %d", flag, text, least, uint64(1)<<bits-1)
		}
		out = append(out, N(n))
	}
	return out, nil
}
