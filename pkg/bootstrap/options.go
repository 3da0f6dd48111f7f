package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// The clients that a bootstrap can be for.
const (
	ForEnvoy = "envoy"
	ForGRPC  = "grpc"
)

// The defaults of Options.
const (
	DefaultXDSAddress   = "127.0.0.1:18000"
	DefaultAdminAddress = "127.0.0.1:15000"
	DefaultCluster      = "freshmesh"
)

// Options are what a node is, and where its control plane is.
type Options struct {
	// Client is ForEnvoy or ForGRPC.
	Client string
	// NodeID is required.
	NodeID string
	// Cluster is node.cluster, which Envoy wants set; "" means DefaultCluster.
	Cluster string
	// XDSAddress is HOST:PORT of the control plane; "" means DefaultXDSAddress.
	XDSAddress string
	// Region, Zone and SubZone are node.locality; "" where not known.
	Region, Zone, SubZone string
	// Namespace, OutboundAddress and TCP (address → cluster) become the
	// node's metadata; only Envoy has sockets, so the last two are for it.
	Namespace       string
	OutboundAddress string
	TCP             map[string]string
	// Metadata is further metadata, all of it text.
	Metadata map[string]string
	// AdminAddress is Envoy's admin; "" means DefaultAdminAddress.
	AdminAddress string
	// SotW makes Envoy speak the state-of-the-world variant; gRPC clients know no other.
	SotW bool
	// Output is a file to write to; "" means standard output.
	Output string
}

// parse reads the arguments after "bootstrap". The error is pflag.ErrHelp when
// help was asked for, and the usage has been written to usage then.
func parse(args []string, usage io.Writer) (Options, error) {
	var o Options
	flags := pflag.NewFlagSet("bootstrap", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server bootstrap envoy|grpc --node-id ID [flags]\n\n"+
			"Writes a bootstrap: YAML for envoy --config-path, or JSON for the file that GRPC_XDS_BOOTSTRAP names.\n\n%s", flags.FlagUsages())
	}
	flags.StringVar(&o.NodeID, "node-id", "", "node `ID`, <pod>.<namespace> for a pod")
	flags.StringVar(&o.XDSAddress, "xds-address", DefaultXDSAddress, "`HOST:PORT` of the control plane")
	flags.StringVar(&o.Cluster, "node-cluster", DefaultCluster, "node.cluster: `NAME` of the group of nodes")
	flags.StringVar(&o.Namespace, "namespace", "", "`NAMESPACE` whose short service names the node uses")
	flags.StringVar(&o.Region, "region", "", "node.locality.region")
	flags.StringVar(&o.Zone, "zone", "", "node.locality.zone")
	flags.StringVar(&o.SubZone, "sub-zone", "", "node.locality.sub_zone")
	flags.StringToStringVar(&o.Metadata, "metadata", nil, "further node metadata, `KEY=VALUE`; repeatable")
	flags.StringVar(&o.AdminAddress, "admin-address", DefaultAdminAddress, "Envoy: `IP:PORT` of its admin")
	flags.StringVar(&o.OutboundAddress, "outbound-address", "", "Envoy: `IP:PORT` of its outbound listener; the server's default is 127.0.0.1:15001. Two Envoys on one port share it without a word")
	flags.StringToStringVar(&o.TCP, "tcp", nil, "Envoy: `ADDRESS=CLUSTER`, a listener that passes TCP on; repeatable")
	flags.BoolVar(&o.SotW, "sotw", false, "Envoy: the state-of-the-world variant instead of the incremental one")
	flags.StringVarP(&o.Output, "output", "o", "", "write to `FILE` instead of standard output")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() != 1 {
		return o, errors.New("name one client: envoy or grpc")
	}
	o.Client = flags.Arg(0)
	if o.Client == ForGRPC {
		for _, name := range []string{"admin-address", "outbound-address", "tcp", "sotw"} {
			if flags.Changed(name) {
				return o, fmt.Errorf("--%s is for envoy only", name)
			}
		}
	}
	return o, nil
}

// complete checks o and fills in what is left out.
func (o *Options) complete() error {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&o.Cluster, DefaultCluster}, {&o.XDSAddress, DefaultXDSAddress}, {&o.AdminAddress, DefaultAdminAddress},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if o.Client != ForEnvoy && o.Client != ForGRPC {
		return fmt.Errorf("client %q: envoy or grpc", o.Client)
	}
	if o.NodeID == "" {
		return errors.New("--node-id is required")
	}
	if _, _, err := hostPort(o.XDSAddress); err != nil {
		return fmt.Errorf("--xds-address: %w", err)
	}
	if _, err := listenAddress(o.AdminAddress); err != nil {
		return fmt.Errorf("--admin-address: %w", err)
	}
	return o.completeMetadata()
}

func (o *Options) completeMetadata() error {
	if o.OutboundAddress != "" {
		if err := socketAddress(o.OutboundAddress); err != nil {
			return fmt.Errorf("--outbound-address: %w", err)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(o.TCP)) {
		if err := socketAddress(address); err != nil {
			return fmt.Errorf("--tcp: %w", err)
		}
		if o.TCP[address] == "" {
			return fmt.Errorf("--tcp: %s: no cluster is named", address)
		}
	}
	for _, key := range []string{"namespace", "outbound_address", "tcp"} {
		if _, ok := o.Metadata[key]; ok {
			return fmt.Errorf("--metadata: %s has a flag of its own: --%s", key, strings.ReplaceAll(key, "_", "-"))
		}
	}
	return nil
}

// hostPort splits HOST:PORT, both of which must be there.
func hostPort(text string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q: want HOST:PORT", text)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("%q: port %q is not between 1 and 65535", text, portText)
	}
	return host, uint16(port), nil
}

// listenAddress parses IP:PORT; port 0 stands for any free one.
func listenAddress(text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%q: want IP:PORT", text)
	}
	return a, nil
}

// socketAddress checks an address that the control plane will make a listener of.
func socketAddress(text string) error {
	a, err := listenAddress(text)
	if err == nil && a.Port() == 0 {
		err = fmt.Errorf("%q: the port must not be 0", text)
	}
	return err
}

// metadata is the node's, nil when there is none.
func (o *Options) metadata() map[string]any {
	m := make(map[string]any)
	for k, v := range o.Metadata {
		m[k] = v
	}
	if o.Namespace != "" {
		m["namespace"] = o.Namespace
	}
	if o.OutboundAddress != "" {
		m["outbound_address"] = o.OutboundAddress
	}
	if len(o.TCP) > 0 {
		tcp := make(map[string]any, len(o.TCP))
		for address, cluster := range o.TCP {
			tcp[address] = cluster
		}
		m["tcp"] = tcp
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
