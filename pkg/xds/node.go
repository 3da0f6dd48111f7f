package xds

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Node is what a client says of itself in its first request.
type Node struct {
	ID     mesh.NodeID
	Client string
	// Active tells that the client applies before it acknowledges.
	Active bool
	// Prompt tells that the client never withholds an ACK while it warms something:
	// our data plane and the gRPC clients do not, Envoy and clients not known here may.
	Prompt bool
	View   mesh.View
	// Pod is the pod that the client says it runs in, which may be none that exists: metadata.pod, or else what
	// the id names as <pod>.<namespace>; the zero Key where neither does.
	Pod mesh.Key
	// OutboundAddress and TCP (address → cluster) shape the socket listeners
	// of this node; OutboundAddress is "" when the node does not say.
	OutboundAddress string
	TCP             map[string]string
	// proto is what CSDS shows of the node.
	proto *corev3.Node
}

// parseNode reads the node message, whose metadata may have maxBytes. The metadata fields are all optional:
// namespace, pod, node, listeners, outbound_address, tcp.
func parseNode(n *corev3.Node, maxBytes int) (Node, error) {
	if n.GetId() == "" {
		return Node{}, refusal(RefusedMalformed, codes.InvalidArgument, "node.id: the first request on a stream must have one")
	}
	if size := proto.Size(n.GetMetadata()); size > maxBytes {
		return Node{}, refusal(RefusedNodeBytes, codes.ResourceExhausted,
			"node.metadata: %d bytes, more than %d (--max-node-bytes)", size, maxBytes)
	}
	out := Node{
		ID:     mesh.NodeID(n.GetId()),
		Client: cut(strings.TrimSpace(n.GetUserAgentName() + " " + userAgentVersion(n))),
		Active: n.GetUserAgentName() == mesh.DataplaneUserAgent,
		proto:  shownNode(n),
		View: mesh.View{
			Listeners: mesh.ListenersAPI,
			Region:    n.GetLocality().GetRegion(),
			Zone:      n.GetLocality().GetZone(),
		},
	}
	out.Prompt = out.Active || strings.HasPrefix(n.GetUserAgentName(), "gRPC ")
	if n.GetUserAgentName() == "envoy" {
		out.View.Listeners = mesh.ListenersSocket
	}
	if err := out.metadata(n.GetMetadata().GetFields()); err != nil {
		return Node{}, err
	}
	if err := out.check(); err != nil {
		return Node{}, err
	}
	return out, nil
}

func userAgentVersion(n *corev3.Node) string {
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	return n.GetUserAgentVersion()
}

func (n *Node) metadata(fields map[string]*structpb.Value) error {
	n.View.Namespace = fields["namespace"].GetStringValue()
	n.View.Node = fields["node"].GetStringValue()
	n.Pod = podOf(n.ID, n.View.Namespace, fields["pod"].GetStringValue())
	n.OutboundAddress = fields["outbound_address"].GetStringValue()
	switch kind := fields["listeners"].GetStringValue(); kind {
	case "":
	case string(mesh.ListenersAPI), string(mesh.ListenersSocket):
		n.View.Listeners = mesh.ListenerKind(kind)
	default:
		return refusal(RefusedMalformed, codes.InvalidArgument, "node.metadata.listeners: %q is neither api nor socket", kind)
	}
	tcp := fields["tcp"].GetStructValue().GetFields()
	if len(tcp) > 0 {
		n.TCP = make(map[string]string, len(tcp))
	}
	for address, cluster := range tcp {
		n.TCP[address] = cluster.GetStringValue()
	}
	return nil
}

// podOf is the pod by the metadata where that names one, or else by the id.
func podOf(id mesh.NodeID, namespace, pod string) mesh.Key {
	if namespace == "" || pod == "" {
		// A namespace is a label; a pod's name may have dots.
		i := strings.LastIndexByte(string(id), '.')
		if i <= 0 || i == len(id)-1 {
			return mesh.Key{}
		}
		pod, namespace = string(id[:i]), string(id[i+1:])
	}
	return mesh.Key{Kind: mesh.KindPod, Namespace: namespace, Name: pod}
}
