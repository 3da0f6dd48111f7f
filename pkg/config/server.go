package config

import (
	"errors"
	"fmt"
	"time"
)

// Log is how a program logs.
type Log struct {
	// Level is trace, debug, info, warn, error or off.
	Level string
	// Format is text or json.
	Format string
}

// Source is where an xds-server takes its Kubernetes objects from.
type Source int

// The sources.
const (
	// FromManifests: a watched directory, Server.Manifests.
	FromManifests Source = iota
	// FromKubeconfig: the cluster that the file Server.Kubeconfig names.
	FromKubeconfig
	// InCluster: the cluster that the program runs in, by its service account.
	InCluster
)

// Server is the configuration of `xds-server serve`.
type Server struct {
	// Source tells which of the next two counts.
	Source Source
	// Manifests is the directory of Kubernetes YAML; "" unless Source is FromManifests.
	Manifests string
	// Kubeconfig is the kubeconfig file; "" unless Source is FromKubeconfig.
	Kubeconfig string
	// StaticResources is a directory of xDS resources to serve beside, or "".
	StaticResources string
	// XDSAddress and AdminAddress are for net.Listen.
	XDSAddress   string
	AdminAddress string
	// ClusterDomain is the last part of service names, without dots at its ends.
	ClusterDomain string
	// ProbeInterval is how long a stream may go without an ACK before it is probed.
	ProbeInterval time.Duration
	// AckTimeout is how long a node may take to acknowledge.
	AckTimeout time.Duration
	// SourceCheckInterval is within how long live reads find a watch of the cluster that
	// stopped delivering, or a cluster that went back to an older state.
	SourceCheckInterval time.Duration
	// DrainSettle is how long a drain that is over waits before it is answered; 0 answers at once.
	DrainSettle time.Duration
	// MaxStreams bounds the streams of one connection.
	MaxStreams int
	// MaxSubscriptions bounds the names that one stream subscribes to, all types together.
	MaxSubscriptions int
	// MaxNodeStreams bounds the streams of one node id, over all its connections.
	MaxNodeStreams int
	// MaxNodeBytes bounds the metadata of a node message.
	MaxNodeBytes int
	// MaxRequestBytes bounds one xDS request.
	MaxRequestBytes int
	// HistoryLimit bounds the lines of the history of published changes.
	HistoryLimit int
	// AuditLog is the file of the audit log, or "" for none.
	AuditLog string
	// AuditLogMaxBytes bounds one file of it, AuditLogMaxFiles how many are kept.
	AuditLogMaxBytes int
	AuditLogMaxFiles int
	// Pprof serves /debug/pprof on the admin address.
	Pprof bool
	// Channelz serves gRPC's channelz on the xDS address.
	Channelz bool
	Log      Log
}

// DefaultServer is the configuration before any origin has spoken; it names no source.
func DefaultServer() Server {
	return Server{
		XDSAddress:          "127.0.0.1:18000",
		AdminAddress:        "127.0.0.1:18080",
		ClusterDomain:       "cluster.local",
		ProbeInterval:       10 * time.Second,
		AckTimeout:          5 * time.Second,
		SourceCheckInterval: 30 * time.Second,
		DrainSettle:         250 * time.Millisecond,
		MaxStreams:          1000,
		MaxSubscriptions:    100_000,
		MaxNodeStreams:      1000,
		MaxNodeBytes:        64 << 10,
		MaxRequestBytes:     32 << 20, // a reconnecting client names all that it holds
		HistoryLimit:        65_536,
		AuditLogMaxBytes:    100 << 20,
		AuditLogMaxFiles:    5,
		Log:                 Log{Level: "info", Format: "text"},
	}
}

const serverUsage = `Usage: xds-server serve [flags]

Serves xDS from Kubernetes objects: those of a watched directory (--manifests), of the cluster
that a kubeconfig names (--kubeconfig), or of the cluster that it runs in (neither).
`

// LoadServer reads the configuration of `xds-server serve` from its arguments
// (without the program's name and "serve") and the environment. The Server
// counts only where the Result's Action is Run or Check. The error joins all
// that is wrong, one line each, every line with its origin.
func LoadServer(args []string, lookupEnv func(string) (string, bool)) (Server, Result, error) {
	c := DefaultServer()
	t := serverTable(&c, lookupEnv)
	result, err := t.load(args, lookupEnv)
	return c, result, err
}

func serverTable(c *Server, lookupEnv func(string) (string, bool)) *table {
	t := &table{usage: serverUsage}
	path(t, &c.Manifests, "manifests", "directory", "take Kubernetes objects from the YAML and JSON files of this directory, and watch it", existingDirectory)
	path(t, &c.Kubeconfig, "kubeconfig", "file", "take Kubernetes objects from the cluster that this kubeconfig names", existingFile)
	path(t, &c.StaticResources, "static-resources", "directory", "serve the xDS resources of this directory too, and watch it", existingDirectory)
	text(t, &c.XDSAddress, "xds-address", "address", "serve xDS (gRPC) here", listenAddress)
	text(t, &c.AdminAddress, "admin-address", "address", "serve the admin side (HTTP) here", listenAddress)
	text(t, &c.ClusterDomain, "cluster-domain", "domain", "last part of service names", clusterDomain)
	duration(t, &c.ProbeInterval, "probe-interval", "probe a stream that has acknowledged nothing for this long")
	duration(t, &c.AckTimeout, "ack-timeout", "a node that takes longer to acknowledge is stale, and its stream is reset")
	duration(t, &c.SourceCheckInterval, "source-check-interval", "find a watch of the cluster that stopped delivering within this time, by live reads")
	optionalDuration(t, &c.DrainSettle, "drain-settle", "once all nodes have acknowledged that an endpoint is out of use, wait so long for requests on their way to it")
	count(t, &c.MaxStreams, "max-streams", "streams allowed on one connection")
	count(t, &c.MaxSubscriptions, "max-subscriptions", "names that one stream may subscribe to, all types together")
	count(t, &c.MaxNodeStreams, "max-node-streams", "streams that one node id may have open")
	count(t, &c.MaxNodeBytes, "max-node-bytes", "size allowed for the metadata of a node")
	count(t, &c.MaxRequestBytes, "max-request-bytes", "size allowed for one xDS request")
	count(t, &c.HistoryLimit, "history-limit", "lines that explain remembers of published changes: one for each, and one for each endpoint that it changed")
	path(t, &c.AuditLog, "audit-log", "file", "write what is published and what happens to each node to this file, as lines of JSON", writableFile)
	count(t, &c.AuditLogMaxBytes, "audit-log-max-bytes", "size at which the audit log goes on in a new file")
	count(t, &c.AuditLogMaxFiles, "audit-log-max-files", "files of the audit log that are kept, the newest included")
	boolean(t, &c.Pprof, "pprof", "serve /debug/pprof on the admin address")
	boolean(t, &c.Channelz, "channelz", "serve gRPC's channelz on the xDS address")
	logFields(t, &c.Log)
	t.judge = func() []error { return []error{c.chooseSource(t, lookupEnv)} }
	return t
}

// chooseSource sets Source. In a cluster, as Kubernetes marks it for every
// container, no flag is needed; elsewhere exactly one must be given.
func (c *Server) chooseSource(t *table, lookupEnv func(string) (string, bool)) error {
	switch {
	case c.Manifests != "" && c.Kubeconfig != "":
		return fmt.Errorf("%s and %s: only one source can be given", t.field("manifests").where(), t.field("kubeconfig").where())
	case c.Manifests != "":
		c.Source = FromManifests
	case c.Kubeconfig != "":
		c.Source = FromKubeconfig
	default:
		if host, ok := lookupEnv("KUBERNETES_SERVICE_HOST"); !ok || host == "" {
			return errors.New("no source: give --manifests DIR or --kubeconfig FILE, or run inside a cluster")
		}
		c.Source = InCluster
	}
	return nil
}

func logFields(t *table, c *Log) {
	text(t, &c.Level, "log-level", "level", "trace, debug, info, warn, error or off", oneOf("trace", "debug", "info", "warn", "error", "off"))
	text(t, &c.Format, "log-format", "format", "text or json", oneOf("text", "json"))
}
