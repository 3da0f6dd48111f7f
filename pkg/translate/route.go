package translate

import (
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	http_connection_managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	previous_hostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// routerFilter ends every filter chain: all clients refuse one without it.
var routerFilter = &http_connection_managerv3.HttpFilter{
	Name:       "envoy.filters.http.router",
	ConfigType: &http_connection_managerv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
}

// listenerOf makes the api_listener of a target, the entry of a gRPC client.
func listenerOf(name string) made {
	l := &listenerv3.Listener{
		Name:        name,
		ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager(name, name))},
	}
	return made{Resource: mesh.Resource{Type: mesh.TypeListener, Name: name, Body: marshal(l), For: mesh.ListenersAPI}}
}

func manager(statPrefix, route string) *http_connection_managerv3.HttpConnectionManager {
	return &http_connection_managerv3.HttpConnectionManager{
		StatPrefix: statPrefix,
		RouteSpecifier: &http_connection_managerv3.HttpConnectionManager_Rds{
			Rds: &http_connection_managerv3.Rds{ConfigSource: ads(), RouteConfigName: route},
		},
		HttpFilters: []*http_connection_managerv3.HttpFilter{routerFilter},
	}
}

// routeOf makes the route configuration of one target. It is looked up by the
// target's name, so it can hold every authority that means the target anywhere.
func routeOf(t target, s *settings) made {
	name := t.name()
	domains := append(t.qualified(true), t.own(true)...)
	c := &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{virtualHost(name, domains, name, s)}}
	return made{Resource: mesh.Resource{Type: mesh.TypeRoute, Name: name, Body: marshal(c)}}
}

func virtualHost(name string, domains []string, cluster string, s *settings) *routev3.VirtualHost {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		// Envoy's default of 15 s would cut long calls; deadlines are the caller's.
		Timeout:     durationpb.New(s.timeout),
		RetryPolicy: s.retry.proto(),
	}
	if s.policy == policyRingHash || s.policy == policyMaglev {
		action.HashPolicy = sourceHash()
	}
	return &routev3.VirtualHost{
		Name:    name,
		Domains: domains,
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: action},
		}},
	}
}

// sourceHash hashes by the client's address; a gRPC client, which is the source
// itself, by its channel (gRFC A42). Each ignores the other's policy.
func sourceHash() []*routev3.RouteAction_HashPolicy {
	return []*routev3.RouteAction_HashPolicy{
		{PolicySpecifier: &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
		}},
		{PolicySpecifier: &routev3.RouteAction_HashPolicy_FilterState_{
			FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
		}},
	}
}

// unsent is what Envoy does again where a service says nothing of retries: what was never
// worked on goes to another endpoint, as our data plane has it. gRPC clients do that by themselves,
// and take nothing from this policy: they know none of its conditions (gRFC A44).
func unsent() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,reset-before-request",
		NumRetries: wrapperspb.UInt32(unsentAttempts),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previous_hostsv3.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: unsentAttempts + 1,
	}
}

// unsentAttempts is to how many other endpoints Envoy goes with what it could not send.
const unsentAttempts = 4

func (r *retry) proto() *routev3.RetryPolicy {
	if r == nil {
		return unsent()
	}
	if len(r.on) == 0 {
		return nil
	}
	return &routev3.RetryPolicy{
		RetryOn:       strings.Join(r.on, ","),
		NumRetries:    wrapperspb.UInt32(r.attempts),
		PerTryTimeout: saidDuration(r.perTryTimeout),
	}
}

// metadata is the same for our data plane, which has no routes.
func (r *retry) metadata() *structpb.Struct {
	fields := map[string]*structpb.Value{mesh.RetryOnKey: structpb.NewStringValue(strings.Join(r.on, ","))}
	if len(r.on) > 0 {
		fields[mesh.RetryAttemptsKey] = structpb.NewNumberValue(float64(r.attempts))
	}
	if r.perTryTimeout > 0 {
		fields[mesh.RetryPerTryTimeoutKey] = structpb.NewStringValue(r.perTryTimeout.String())
	}
	return &structpb.Struct{Fields: fields}
}
