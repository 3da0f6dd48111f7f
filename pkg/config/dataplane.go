package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Protocol is what a Listen carries.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	HTTP Protocol = "http"
)

// Listen is an address that leads to one cluster.
type Listen struct {
	// Address is for net.Listen.
	Address string
	// Cluster is a cluster's name, such as echo.default.svc.cluster.local:9000.
	Cluster  string
	Protocol Protocol
	// ProxyHeader: connections begin with a PROXY header, version 2. Only for TCP.
	ProxyHeader bool
}

// String gives ADDRESS=CLUSTER,PROTOCOL[,proxy], which parses to the same Listen.
func (l Listen) String() string {
	text := l.Address + "=" + l.Cluster + "," + string(l.Protocol)
	if l.ProxyHeader {
		text += ",proxy"
	}
	return text
}

// ParseListen takes ADDRESS=CLUSTER[,tcp|http][,proxy]; tcp is the default, and the only one with proxy. The error
// says which part is wrong.
func ParseListen(s string) (Listen, error) {
	form := func(reason string) (Listen, error) {
		return Listen{}, fmt.Errorf("%q: %s (the form is ADDRESS=CLUSTER[,tcp|http][,proxy])", s, reason)
	}
	if err := printable(s); err != nil {
		return Listen{}, err
	}
	address, rest, ok := strings.Cut(s, "=")
	if !ok {
		return form("names no cluster")
	}
	cluster, protocol, given := strings.Cut(rest, ",")
	l := Listen{Address: address, Cluster: cluster, Protocol: TCP}
	if given {
		if protocol == "proxy" {
			protocol = "tcp,proxy"
		}
		protocol, l.ProxyHeader = strings.CutSuffix(protocol, ",proxy")
		l.Protocol = Protocol(protocol)
	}
	if cluster == "" {
		return form("names no cluster")
	}
	if l.Protocol != TCP && l.Protocol != HTTP {
		return form(fmt.Sprintf("protocol %q is neither tcp nor http", protocol))
	}
	if l.ProxyHeader && l.Protocol != TCP {
		return form("proxy is only for tcp")
	}
	if err := listenAddress(address); err != nil {
		return Listen{}, err
	}
	return l, nil
}

// Dataplane is the configuration of `dataplane`.
type Dataplane struct {
	// NodeID is never "": where not given it is <pod>.<namespace>.
	NodeID string
	// XDSAddresses are the control plane's servers in order of preference, at least one.
	XDSAddresses []string
	// AdminAddress and OutboundAddress are for net.Listen.
	AdminAddress    string
	OutboundAddress string
	// InboundAddress is "" for off.
	InboundAddress string
	// Transparent makes the outbound and the inbound listener fit for TPROXY.
	Transparent bool
	// OpaquePorts and SkipPorts are destination ports; see package proxy.
	OpaquePorts, SkipPorts []uint16
	UnknownDestinations    UnknownDestinations
	Limits                 Limits
	// HealthAddress is "" for off.
	HealthAddress string
	Listen        []Listen
	// StateDir keeps the last good configuration; "" keeps none. It may not exist yet; its parent does.
	StateDir string
	// Namespace is the one that short names are looked up in.
	Namespace string
	// Pod, NodeName (the Kubernetes node), Zone and Region say where the proxy runs; "" for unknown.
	Pod, NodeName, Zone, Region string
	ClusterDomain               string
	// ProbeInterval is the server's: this long without a word from it, and the data plane asks.
	ProbeInterval time.Duration
	// DiscoveryMaxAge is how long discovery may go without being vouched for.
	DiscoveryMaxAge time.Duration
	// DrainTime bounds how long in-flight work may take after SIGTERM.
	DrainTime time.Duration
	// FailFast is how long requests wait for a cluster without a usable endpoint, FailFastInbound
	// for the application behind the proxy.
	FailFast, FailFastInbound time.Duration
	// MaxConnectionAge is about how old a client's HTTP connection gets (0: no limit), and
	// MaxConnectionAgeGrace what is on it then gets to finish.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// MaxActiveRequests and MaxRequestBytes are 0 for no limit.
	MaxActiveRequests, MaxRequestBytes int
	// AccessLog is a file, "-" for standard output, or "" for none.
	AccessLog string
	// Pprof serves /debug/pprof on the admin address.
	Pprof bool
	Log   Log
}

// DefaultDataplane is the configuration before any origin has spoken; it has no node id.
func DefaultDataplane() Dataplane {
	return Dataplane{
		XDSAddresses:    []string{"127.0.0.1:18000"},
		AdminAddress:    "127.0.0.1:15000",
		OutboundAddress: "127.0.0.1:15001",
		HealthAddress:   ":15021",
		Namespace:       "default",
		ClusterDomain:   "cluster.local",
		ProbeInterval:   10 * time.Second,
		DiscoveryMaxAge: 5 * time.Minute,
		DrainTime:       30 * time.Second,

		OpaquePorts:         []uint16{25, 587, 3306, 4444, 5432, 6379, 9300, 11211},
		UnknownDestinations: Pass,
		Limits:              defaultLimits(),

		FailFast:              3 * time.Second,
		FailFastInbound:       time.Second,
		MaxConnectionAgeGrace: 30 * time.Second,
		Log:                   Log{Level: "info", Format: "text"},
	}
}

const dataplaneUsage = `Usage: dataplane --node-id ID [flags]
       dataplane redirect [flags]

Proxies HTTP/1.1, HTTP/2, gRPC and TCP to the endpoints that an xds-server gives it. "redirect" leads
the connections of a network namespace to it.
`

// LoadDataplane reads the configuration of `dataplane` from its arguments
// (without the program's name) and the environment; see LoadServer.
func LoadDataplane(args []string, lookupEnv func(string) (string, bool)) (Dataplane, Result, error) {
	c := DefaultDataplane()
	t := dataplaneTable(&c)
	result, err := t.load(args, lookupEnv)
	return c, result, err
}

func dataplaneTable(c *Dataplane) *table {
	t := &table{usage: dataplaneUsage}
	text(t, &c.NodeID, "node-id", "id", "xDS node id; <pod>.<namespace> when --pod is given", anyText)
	list(t, &c.XDSAddresses, "xds-address", "address", "control plane, in order of preference; repeat it, or separate with commas",
		commasAndSpaces, dialAddress, func(s string) string { return s })
	text(t, &c.AdminAddress, "admin-address", "address", "serve the admin side (HTTP) here", listenAddress)
	text(t, &c.OutboundAddress, "outbound-address", "address", "take outbound requests here, and pick the cluster by authority", listenAddress)
	text(t, &c.InboundAddress, "inbound-address", "address", "take captured inbound connections here; empty is off", optional(listenAddress))
	text(t, &c.HealthAddress, "health-address", "address", "serve /ready and /drain for kubelet here; empty is off", optional(listenAddress))
	list(t, &c.Listen, "listen", "ADDRESS=CLUSTER[,tcp|http][,proxy]", "take traffic for one cluster here, with proxy behind a PROXY header (repeatable)",
		strings.Fields, ParseListen, Listen.String)
	path(t, &c.StateDir, "state-dir", "directory", "keep the last good configuration here, for a start without a control plane", makeableDirectory)
	text(t, &c.Namespace, "namespace", "name", "namespace that short names are looked up in", namespaceName)
	text(t, &c.Pod, "pod", "name", "name of the pod that the proxy runs in", anyText)
	text(t, &c.NodeName, "node-name", "name", "name of the Kubernetes node that the proxy runs on", anyText)
	text(t, &c.Zone, "zone", "zone", "zone that the proxy runs in", anyText)
	text(t, &c.Region, "region", "region", "region that the proxy runs in", anyText)
	text(t, &c.ClusterDomain, "cluster-domain", "domain", "last part of service names, as the control plane has it", clusterDomain)
	duration(t, &c.ProbeInterval, "probe-interval", "the control plane's; after this long without a word from it, and 2s, ask again")
	duration(t, &c.DiscoveryMaxAge, "discovery-max-age", "re-validate every subscription within this time")
	duration(t, &c.DrainTime, "drain-time", "let in-flight work take this long after SIGTERM")
	duration(t, &c.FailFast, "fail-fast", "fail requests to a service at once when it has had no usable endpoint for this long")
	duration(t, &c.FailFastInbound, "fail-fast-inbound", "the same for requests to the application behind the proxy")
	captureFields(t, c)
	limitFields(t, &c.Limits)
	optionalDuration(t, &c.MaxConnectionAge, "max-connection-age", "tell a client's HTTP connection to go at about this age (10% more or less); 0 is off")
	duration(t, &c.MaxConnectionAgeGrace, "max-connection-age-grace", "what is on a connection of that age gets this long to finish")
	limit(t, &c.MaxActiveRequests, "max-active-requests", "shed requests at once while so many are in flight; 0 is no limit")
	limit(t, &c.MaxRequestBytes, "max-request-bytes", "refuse longer request bodies, streams included; 0 is no limit")
	path(t, &c.AccessLog, "access-log", "file", "write a JSON line for each request to this file, - for standard output; empty is off", fileOrStandardOutput)
	boolean(t, &c.Pprof, "pprof", "serve /debug/pprof on the admin address")
	logFields(t, &c.Log)
	t.judge = func() []error { return c.complete() }
	return t
}

// complete fills in what follows from other settings and judges the whole.
func (c *Dataplane) complete() []error {
	var wrong []error
	if c.NodeID == "" && c.Pod != "" {
		c.NodeID = c.Pod + "." + c.Namespace
	}
	if c.NodeID == "" {
		wrong = append(wrong, errors.New("no node id: give --node-id ID, or --pod NAME"))
	}
	if len(c.XDSAddresses) == 0 {
		wrong = append(wrong, errors.New("--xds-address: at least one address is needed"))
	}
	return append(wrong, c.sharedAddresses()...)
}

// sharedAddresses finds listeners that would want the same address. Port 0 is shared freely.
func (c *Dataplane) sharedAddresses() []error {
	type use struct{ address, name string }
	uses := []use{{c.AdminAddress, "--admin-address"}, {c.OutboundAddress, "--outbound-address"}, {c.InboundAddress, "--inbound-address"}, {c.HealthAddress, "--health-address"}}
	for _, l := range c.Listen {
		uses = append(uses, use{l.Address, "--listen " + l.String()})
	}
	var wrong []error
	taken := map[string]string{} // address → the name of its first use
	for _, u := range uses {
		if u.address == "" || strings.HasSuffix(u.address, ":0") {
			continue
		}
		if first, ok := taken[u.address]; ok {
			wrong = append(wrong, fmt.Errorf("%s and %s: both want %s", first, u.name, u.address))
			continue
		}
		taken[u.address] = u.name
	}
	return wrong
}

func commasAndSpaces(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}
