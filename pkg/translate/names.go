package translate

import (
	"strconv"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// target is one name that a service is reached by: a port, or a pod's host
// name with a port.
type target struct {
	// host is "echo", or "echo-0.echo" for a pod's host name.
	host      string
	namespace string
	domain    string
	port      uint16
	// pod is true for a pod's host name.
	pod bool
}

// name is the name of all four resources.
func (t target) name() string {
	return t.host + "." + t.namespace + ".svc." + t.domain + ":" + strconv.Itoa(int(t.port))
}

// statName is the name without what is the same for all services and without
// dots and colons, which Envoy takes for the borders of statistics' names.
func (t target) statName() string {
	return strings.ReplaceAll(t.host, ".", "_") + "_" + t.namespace + "_" + strconv.Itoa(int(t.port))
}

// qualified are the authorities that mean this target from every namespace:
// those that CoreDNS would resolve with its search list, each with the port and,
// for port 80 or where always is set, without it.
//
// No two targets have one in common. A service's authorities have 2, 3, and 3
// plus the cluster domain's labels; a pod's have one label more, so only 2+1 and
// 3 could meet, when a namespace is called svc: such a pod goes without its
// short form. (The cluster domain "svc" would be another way; nobody has it.)
func (t target) qualified(always bool) []string {
	base := t.host + "." + t.namespace
	hosts := []string{base + ".svc." + t.domain, base + ".svc", base}
	if t.pod && t.namespace == "svc" {
		hosts = hosts[:2]
	}
	return t.authorities(hosts, always)
}

// own are the authorities that mean this target in its own namespace only. A
// pod's has two labels and could be another service's qualified one, so it is
// only for tables that hold nothing else.
func (t target) own(always bool) []string { return t.authorities([]string{t.host}, always) }

func (t target) authorities(hosts []string, always bool) []string {
	port := ":" + strconv.Itoa(int(t.port))
	out := make([]string, 0, 2*len(hosts))
	for _, h := range hosts {
		if always || t.port == 80 {
			out = append(out, h)
		}
		out = append(out, h+port)
	}
	return out
}

// protocol is how a service port is spoken to.
type protocol struct {
	// http is false for opaque TCP: no listener and no route.
	http bool
	// http2 is prior knowledge: h2c.
	http2 bool
}

// protocolOf reads appProtocol. Values that start HTTP in the clear are served
// as HTTP, and so is a port that says nothing. All others are opaque, TLS
// included: what a client encrypts itself passes as it is. The set of values is
// open (IANA service names and kubernetes.io/…), so none is a problem.
func protocolOf(p mesh.ServicePort, s *settings) protocol {
	if s.opaque[p.Port] || s.proxyProtocol[p.Port] {
		return protocol{}
	}
	switch strings.ToLower(p.AppProtocol) {
	case "", "http", "http1", "grpc-web", "ws", "kubernetes.io/ws":
		return protocol{http: true}
	case "grpc", "h2c", "http2", "kubernetes.io/h2c":
		return protocol{http: true, http2: true}
	}
	return protocol{}
}
