package xds

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// csdsTimeout bounds how long one answer waits for the owners of streams.
const csdsTimeout = 10 * time.Second

// csds is the Client Status Discovery Service, as a management server answers
// it: what each connected node was sent and said to it. One ClientConfig is one
// node, with what it subscribes to on all its streams.
type csds struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	server *Server
}

// StreamClientStatus answers each request.
func (c csds) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response, err := c.FetchClientStatus(stream.Context(), request)
		if err != nil {
			return err
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// FetchClientStatus answers for the nodes that one of the matchers fits, sorted
// by id; without matchers, for all.
func (c csds) FetchClientStatus(ctx context.Context, request *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	match, err := newNodeMatch(request.GetNodeMatchers())
	if err != nil {
		c.server.metrics.count(err)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, csdsTimeout)
	defer cancel()
	configs := make(map[mesh.NodeID]*statusv3.ClientConfig)
	err = c.server.register.each(ctx, "", func(sn *session) {
		if !match.fits(string(sn.node.ID)) {
			return
		}
		config := configs[sn.node.ID]
		if config == nil {
			config = &statusv3.ClientConfig{Node: sn.node.proto}
			configs[sn.node.ID] = config
		}
		config.GenericXdsConfigs = append(config.GenericXdsConfigs, sn.configs(!request.GetExcludeResourceContents())...)
	})
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	out := &statusv3.ClientStatusResponse{}
	for _, config := range configs {
		slices.SortStableFunc(config.GetGenericXdsConfigs(), compareConfigs)
		out.Config = append(out.Config, config)
	}
	slices.SortFunc(out.GetConfig(), func(a, b *statusv3.ClientConfig) int {
		return strings.Compare(a.GetNode().GetId(), b.GetNode().GetId())
	})
	return out, nil
}

func compareConfigs(a, b *statusv3.ClientConfig_GenericXdsConfig) int {
	return cmp.Or(strings.Compare(a.GetTypeUrl(), b.GetTypeUrl()), strings.Compare(a.GetName(), b.GetName()))
}

// configs gives every resource that the stream subscribes to, and those whose
// removal is not acknowledged. Called by the session's owner.
func (sn *session) configs(contents bool) []*statusv3.ClientConfig_GenericXdsConfig {
	sn.core.Published(sn.reader.View())
	acks, view := sn.core.Acks(), sn.core.View()
	var out []*statusv3.ClientConfig_GenericXdsConfig
	for _, t := range acks.Types() {
		tr := acks.Type(t)
		names := make(map[mesh.Name]struct{}, len(tr.Names()))
		for _, name := range tr.Names() {
			names[name] = struct{}{}
		}
		for _, name := range tr.Lacking() {
			names[name] = struct{}{}
		}
		if tr.Wildcard() {
			for _, b := range view.All(t) {
				names[b.Name] = struct{}{}
			}
		}
		for name := range names {
			out = append(out, sn.config(t, name, contents))
		}
	}
	return out
}

// config gives one resource. Its contents are those that are current here,
// refused or not; version_info is the version that the client acknowledged.
func (sn *session) config(t mesh.Type, name mesh.Name, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	view := sn.core.View()
	state, body := sn.core.Acks().Resource(t, name, view), view.Body(t, name)
	out := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: string(t), Name: name.Value(), VersionInfo: string(state.Held)}
	if at, _, ok := view.Cause(t, name); ok {
		out.LastUpdated = timestamppb.New(at)
	}
	if body != nil && contents && t != TypeSecret {
		out.XdsConfig = &anypb.Any{TypeUrl: string(t), Value: body.Value()}
	}
	if state.Stage == ack.Held && body == nil && !sn.core.TellsAbsence(t) {
		state.Stage = ack.NotSent // this variant has no word for it
	}
	out.ConfigStatus, out.ClientStatus = statuses(state, body != nil)
	if state.Stage == ack.Refused {
		out.ErrorState = &adminv3.UpdateFailureState{
			FailedConfiguration: out.GetXdsConfig(), LastUpdateAttempt: timestamppb.New(state.RefusedAt), Details: state.Message,
			VersionInfo: string(view.Version(t, name)),
		}
	}
	return out
}

// statuses says in the words of CSDS how a resource stands: first from the
// server's side, then from the client's.
func statuses(s ack.ResourceState, exists bool) (statusv3.ConfigStatus, adminv3.ClientResourceStatus) {
	client := adminv3.ClientResourceStatus_REQUESTED
	if s.Held != "" {
		client = adminv3.ClientResourceStatus_ACKED
	}
	switch s.Stage {
	case ack.Held:
		if !exists {
			client = adminv3.ClientResourceStatus_DOES_NOT_EXIST
		}
		return statusv3.ConfigStatus_SYNCED, client
	case ack.Refused:
		return statusv3.ConfigStatus_ERROR, adminv3.ClientResourceStatus_NACKED
	case ack.Unanswered:
		return statusv3.ConfigStatus_STALE, client
	case ack.NotSent:
	}
	return statusv3.ConfigStatus_NOT_SENT, client
}

// shownNode is what CSDS gives of a node: not what Envoy lists of its own abilities.
func shownNode(n *corev3.Node) *corev3.Node {
	out := &corev3.Node{
		Id: n.GetId(), Cluster: cut(n.GetCluster()), Metadata: n.GetMetadata(), UserAgentName: cut(n.GetUserAgentName()),
	}
	if l := n.GetLocality(); l != nil {
		out.Locality = &corev3.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: cut(l.GetSubZone())}
	}
	switch v := n.GetUserAgentVersionType().(type) {
	case *corev3.Node_UserAgentVersion:
		out.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: cut(v.UserAgentVersion)}
	case *corev3.Node_UserAgentBuildVersion:
		out.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: v.UserAgentBuildVersion.GetVersion()},
		}
	}
	return proto.CloneOf(out)
}
