package mitm

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Direction is where a frame or a message travels to.
type Direction int

// The directions.
const (
	ToClient Direction = iota
	ToServer
)

// String is "to client" or "to server".
func (d Direction) String() string {
	if d == ToClient {
		return "to client"
	}
	return "to server"
}

func (d Direction) other() Direction { return 1 - d }

// Stream names one HTTP/2 stream.
type Stream struct {
	// Conn numbers the relayed connections from 1, in the order of acceptance.
	Conn int
	// ID is the HTTP/2 stream id. The two sides of the proxy use the same one.
	ID uint32
	// Method is the request's :path, as "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources".
	Method string
	// NodeID is the node id of the first request that has one; "" before, and for other protocols.
	NodeID string
}

// LoadReportType and LoadRequestType are the TypeURLs given to the messages of
// the load reporting service, which carry none: a client's report, and the
// server's request for reports.
const (
	LoadReportType  = "type.googleapis.com/envoy.service.load_stats.v3.LoadStatsRequest"
	LoadRequestType = "type.googleapis.com/envoy.service.load_stats.v3.LoadStatsResponse"
)

// Message is one gRPC message. It is decoded where its stream's method is one
// of the xDS services; otherwise the fields after Body are empty.
type Message struct {
	Stream    Stream
	Direction Direction
	// Body is the message without the gRPC prefix. It is shared: read only.
	Body []byte
	// Compressed tells that Body is compressed. Such a message is not decoded.
	Compressed bool
	TypeURL    string
	// Nonce is the nonce of a response, or the one that a request answers.
	Nonce string
	// IsNack tells that a request carries an error_detail. IsAck tells that a
	// request answers a nonce without one; in SotW, and sometimes in delta, that
	// may be a change of the subscription as well.
	IsAck, IsNack bool
	// Names are those of the resources: subscribed and unsubscribed ones of a
	// request, delivered and removed ones of a response, clusters of load stats.
	Names []string
}

// decode fills m from its Body. It gives the node id, if the message has one.
func (m *Message) decode() (nodeID string) {
	service, rpc, ok := strings.Cut(strings.TrimPrefix(m.Stream.Method, "/"), "/")
	if !ok || m.Compressed || !strings.HasPrefix(service, "envoy.service.") {
		return ""
	}
	toServer := m.Direction == ToServer
	switch {
	case strings.HasSuffix(service, ".LoadReportingService") && toServer:
		return m.decodeReport()
	case strings.HasSuffix(service, ".LoadReportingService"):
		m.decodeReportRequest()
	case strings.HasPrefix(rpc, "Delta") && toServer:
		return m.decodeDeltaRequest()
	case strings.HasPrefix(rpc, "Delta"):
		m.decodeDeltaResponse()
	case toServer:
		return m.decodeRequest()
	default:
		m.decodeResponse()
	}
	return ""
}

func (m *Message) decodeRequest() string {
	var r discoveryv3.DiscoveryRequest
	if proto.Unmarshal(m.Body, &r) != nil {
		return ""
	}
	m.TypeURL, m.Names = r.GetTypeUrl(), r.GetResourceNames()
	m.answers(r.GetResponseNonce(), r.GetErrorDetail() != nil)
	return r.GetNode().GetId()
}

func (m *Message) decodeDeltaRequest() string {
	var r discoveryv3.DeltaDiscoveryRequest
	if proto.Unmarshal(m.Body, &r) != nil {
		return ""
	}
	m.TypeURL = r.GetTypeUrl()
	m.Names = append(r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe()...)
	m.answers(r.GetResponseNonce(), r.GetErrorDetail() != nil)
	return r.GetNode().GetId()
}

func (m *Message) answers(nonce string, refused bool) {
	m.Nonce, m.IsNack, m.IsAck = nonce, refused, nonce != "" && !refused
}

func (m *Message) decodeResponse() {
	var r discoveryv3.DiscoveryResponse
	if proto.Unmarshal(m.Body, &r) != nil {
		return
	}
	m.TypeURL, m.Nonce = r.GetTypeUrl(), r.GetNonce()
	for _, a := range r.GetResources() {
		m.Names = append(m.Names, resourceName(a))
	}
}

func (m *Message) decodeDeltaResponse() {
	var r discoveryv3.DeltaDiscoveryResponse
	if proto.Unmarshal(m.Body, &r) != nil {
		return
	}
	m.TypeURL, m.Nonce = r.GetTypeUrl(), r.GetNonce()
	for _, resource := range r.GetResources() {
		m.Names = append(m.Names, resource.GetName())
	}
	m.Names = append(m.Names, r.GetRemovedResources()...)
}

func (m *Message) decodeReport() string {
	var r loadstatsv3.LoadStatsRequest
	if proto.Unmarshal(m.Body, &r) != nil {
		return ""
	}
	m.TypeURL = LoadReportType
	for _, c := range r.GetClusterStats() {
		m.Names = append(m.Names, c.GetClusterName())
	}
	return r.GetNode().GetId()
}

func (m *Message) decodeReportRequest() {
	var r loadstatsv3.LoadStatsResponse
	if proto.Unmarshal(m.Body, &r) != nil {
		return
	}
	m.TypeURL, m.Names = LoadRequestType, r.GetClusters()
}

// resourceName reads a resource's name, which is field 1 in each of the xDS
// types (Listener, RouteConfiguration, Cluster, ClusterLoadAssignment, Secret).
// "" if it is not there.
func resourceName(a *anypb.Any) string {
	if a.MessageIs((*discoveryv3.Resource)(nil)) {
		var wrapped discoveryv3.Resource
		if proto.Unmarshal(a.GetValue(), &wrapped) == nil {
			return wrapped.GetName()
		}
	}
	for b := a.GetValue(); len(b) > 0; {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if number == 1 && wire == protowire.BytesType {
			name, _ := protowire.ConsumeString(b)
			return name
		}
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}
