package translate

import (
	"maps"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	http_connection_managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcp_proxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// DefaultOutboundAddress is where a socket view listens unless its node says otherwise.
const DefaultOutboundAddress = "127.0.0.1:15001"

// NodeOptions is what a node's metadata says about its sockets.
type NodeOptions struct {
	// ID is for problems only.
	ID mesh.NodeID
	// OutboundAddress is metadata outbound_address; "" is DefaultOutboundAddress.
	OutboundAddress string
	// TCP is metadata tcp: address to listen on → cluster to connect to.
	TCP map[string]string
}

// NodeListeners gives the listeners of a node that takes sockets, sorted by
// name: "outbound", which routes HTTP by authority through the route table of
// that name, and one named "tcp:ADDRESS" for each entry of TCP. A wrong or
// repeated address is a Problem of "node ID", and that listener is left out;
// for a wrong outbound address the default holds.
func NodeListeners(o NodeOptions) ([]mesh.Resource, []mesh.Problem) {
	var resources []mesh.Resource
	var problems []mesh.Problem
	report := func(field, reason string) {
		problems = append(problems, mesh.Problem{Object: "node " + string(o.ID), Field: field, Reason: reason})
	}
	used := make(map[netip.AddrPort]bool)
	at := netip.MustParseAddrPort(DefaultOutboundAddress)
	if o.OutboundAddress != "" {
		if a, reason := listenAddress(o.OutboundAddress); reason == "" {
			at = a
		} else {
			report("metadata.outbound_address", reason)
		}
	}
	used[at] = true
	resources = append(resources, socketListener(OutboundRoute, at, "envoy.filters.network.http_connection_manager", outboundManager()))
	for _, text := range slices.Sorted(maps.Keys(o.TCP)) {
		field := "metadata.tcp[" + text + "]"
		a, reason := listenAddress(text)
		switch {
		case reason != "":
		case used[a]:
			reason = "another listener has this address"
		case o.TCP[text] == "":
			reason = "no cluster is named"
		}
		if reason != "" {
			report(field, reason)
			continue
		}
		used[a] = true
		name := "tcp:" + a.String()
		resources = append(resources, socketListener(name, a, "envoy.filters.network.tcp_proxy", &tcp_proxyv3.TcpProxy{
			StatPrefix:       name,
			ClusterSpecifier: &tcp_proxyv3.TcpProxy_Cluster{Cluster: o.TCP[text]},
			// Nothing has been sent by then.
			MaxConnectAttempts: wrapperspb.UInt32(1 + unsentAttempts),
		}))
	}
	slices.SortFunc(resources, func(a, b mesh.Resource) int {
		return compareNames(mesh.ResourceName{Type: a.Type, Name: a.Name}, mesh.ResourceName{Type: b.Type, Name: b.Name})
	})
	return resources, problems
}

// listenAddress parses IP:PORT; the reason is "" when it is good.
func listenAddress(text string) (a netip.AddrPort, reason string) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
		return a, "not an IP address with a port"
	}
	return a, ""
}

// outboundManager is for sockets of applications: WebSockets pass, and a stream
// may be quiet for as long as its ends like (Envoy's default is 5 minutes).
func outboundManager() *http_connection_managerv3.HttpConnectionManager {
	m := manager(OutboundRoute, OutboundRoute)
	m.UpgradeConfigs = []*http_connection_managerv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}
	m.StreamIdleTimeout = durationpb.New(0)
	return m
}

func socketListener(name string, at netip.AddrPort, filter string, config proto.Message) mesh.Resource {
	l := &listenerv3.Listener{
		Name:    name,
		Address: socketAddress(at.Addr().String(), at.Port()),
		FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{
				Name:       filter,
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(config)},
			}},
		}},
	}
	return mesh.Resource{Type: mesh.TypeListener, Name: name, Body: marshal(l), For: mesh.ListenersSocket}
}
