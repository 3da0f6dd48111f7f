package lrs

import (
	"fmt"
	"math"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/refresh"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Limits bound one request. A zero field takes the default.
type Limits struct {
	// MaxBytes (4 MiB) is the size of a request; gRPC's own limit applies before it.
	MaxBytes int
	// MaxClusters (10,000) and MaxEndpoints (100,000, over all clusters) are how many may be named.
	MaxClusters, MaxEndpoints int
}

// maxName bounds the node id and the names of clusters, in bytes.
const maxName = 1024

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 4 << 20
	}
	if l.MaxClusters <= 0 {
		l.MaxClusters = 10_000
	}
	if l.MaxEndpoints <= 0 {
		l.MaxEndpoints = 100_000
	}
	return l
}

// decode gives the node of the request and a report for each cluster in which
// something failed, in the request's order, each cluster once. node is the
// stream's, "" for its first request, which must name one. The error is a gRPC status.
func decode(req *loadstatsv3.LoadStatsRequest, node mesh.NodeID, l Limits) (mesh.NodeID, []refresh.Report, error) {
	if size := proto.Size(req); size > l.MaxBytes {
		return "", nil, status.Errorf(codes.ResourceExhausted, "load report of %d bytes, at most %d are taken", size, l.MaxBytes)
	}
	if n := len(req.GetClusterStats()); n > l.MaxClusters {
		return "", nil, status.Errorf(codes.ResourceExhausted, "load report names %d clusters, at most %d are taken", n, l.MaxClusters)
	}
	node, err := nodeOf(req, node)
	if err != nil {
		return "", nil, err
	}
	var reports []refresh.Report
	at := map[string]int{} // cluster → its place in reports
	endpoints := 0
	for i, stats := range req.GetClusterStats() {
		name := stats.GetClusterName()
		if name == "" || len(name) > maxName {
			return "", nil, status.Errorf(codes.InvalidArgument, "cluster_stats[%d]: cluster_name has %d bytes, 1 to %d are taken", i, len(name), maxName)
		}
		r := refresh.Report{Node: node, Cluster: name}
		j, again := at[name]
		if again {
			r = reports[j]
		}
		n, err := addLocalities(&r, stats.GetUpstreamLocalityStats())
		if err != nil {
			return "", nil, status.Errorf(codes.InvalidArgument, "cluster_stats[%d] (%s): %v", i, name, err)
		}
		if endpoints += n; endpoints > l.MaxEndpoints {
			return "", nil, status.Errorf(codes.ResourceExhausted, "load report names more than %d endpoints", l.MaxEndpoints)
		}
		switch {
		case again:
			reports[j] = r
		case r.Failed():
			at[name] = len(reports)
			reports = append(reports, r)
		}
	}
	return node, reports, nil
}

// nodeOf gives the node of the stream: the first request's, which later ones may repeat but not change.
func nodeOf(req *loadstatsv3.LoadStatsRequest, node mesh.NodeID) (mesh.NodeID, error) {
	id := req.GetNode().GetId()
	switch {
	case len(id) > maxName:
		return "", status.Errorf(codes.InvalidArgument, "node.id has %d bytes, at most %d are taken", len(id), maxName)
	case node == "" && id == "":
		return "", status.Error(codes.InvalidArgument, "node.id is empty in the first request")
	case node == "":
		return mesh.NodeID(id), nil
	case id != "" && mesh.NodeID(id) != node:
		return "", status.Errorf(codes.InvalidArgument, "node.id changed from %q to %q within the stream", node, id)
	}
	return node, nil
}

// addLocalities adds what failed to r, and gives how many endpoints were named.
func addLocalities(r *refresh.Report, localities []*endpointv3.UpstreamLocalityStats) (int, error) {
	named := 0
	for _, locality := range localities {
		r.CountFailedConnects(locality.GetTotalFailConnections())
		for _, stats := range locality.GetUpstreamEndpointStats() {
			named++
			f, err := failureOf(stats)
			if err != nil {
				return 0, err
			}
			r.CountEndpoint(f)
		}
	}
	return named, nil
}

func failureOf(stats *endpointv3.UpstreamEndpointStats) (refresh.EndpointFailure, error) {
	failed, err := connectFailures(stats.GetMetadata())
	return refresh.EndpointFailure{
		Address:       addressOf(stats.GetAddress()),
		Errors:        stats.GetTotalErrorRequests(),
		Issued:        stats.GetTotalIssuedRequests(),
		ConnectFailed: failed,
	}, err
}

// addressOf is the zero AddrPort for what is no IP and port.
func addressOf(a *corev3.Address) netip.AddrPort {
	socket := a.GetSocketAddress()
	ip, err := netip.ParseAddr(socket.GetAddress())
	port := socket.GetPortValue()
	if err != nil || port == 0 || port > math.MaxUint16 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port))
}

// connectFailures reads our own count; 0 when there is none.
func connectFailures(m *structpb.Struct) (uint64, error) {
	v, ok := m.GetFields()[mesh.ConnectFailuresKey]
	if !ok {
		return 0, nil
	}
	number, ok := v.GetKind().(*structpb.Value_NumberValue)
	if !ok {
		return 0, fmt.Errorf("metadata %s is no number", mesh.ConnectFailuresKey)
	}
	n := number.NumberValue
	// Beyond 2^53 a float64 counts no longer; NaN fails the comparison.
	if !(n >= 0 && n <= 1<<53) || n != math.Trunc(n) {
		return 0, fmt.Errorf("metadata %s is %v, not a count", mesh.ConnectFailuresKey, n)
	}
	return uint64(n), nil
}
