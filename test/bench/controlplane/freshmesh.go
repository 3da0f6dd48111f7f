package main

import (
	"context"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// meshServer is freshmesh's own store and xDS server, with acknowledgement
// tracking, history and metrics on, as xds-server runs them. Translation is
// left out, as it is for the peers: all start from made resources.
type meshServer struct {
	store  *snapshot.Store
	server *xds.Server
}

func newMeshServer(_ context.Context, w *world) (contender, error) {
	store := snapshot.New(snapshot.Config{})
	m := &meshServer{store: store, server: xds.New(xds.Config{
		Store: store, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		Ready: func() error { return nil }, Logger: hclog.NewNullLogger(),
		Registerer: prometheus.NewRegistry(), Propagation: xds.Propagation(),
	})}
	var u mesh.Update
	for i, name := range w.names {
		cluster, err := made(mesh.TypeCluster, name, w.clusters[i])
		if err != nil {
			return nil, err
		}
		cluster.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: name}}
		assignment, err := made(mesh.TypeEndpoint, name, w.assignments[i])
		if err != nil {
			return nil, err
		}
		u.Put = append(u.Put, cluster, assignment)
	}
	store.Publish(u, time.Now())
	return m, nil
}

func made(t mesh.Type, name string, m proto.Message) (mesh.Resource, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return mesh.Resource{Type: t, Name: name, Body: body}, err
}

func (*meshServer) options() []grpc.ServerOption { return xds.ServerOptions() }

func (m *meshServer) register(s *grpc.Server) { m.server.Register(s) }

func (m *meshServer) apply(_ context.Context, changed *endpointv3.ClusterLoadAssignment) error {
	r, err := made(mesh.TypeEndpoint, changed.GetClusterName(), changed)
	if err != nil {
		return err
	}
	m.store.Publish(mesh.Update{Put: []mesh.Resource{r}}, time.Now())
	return nil
}
