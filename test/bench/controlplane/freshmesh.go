package main

import (
	"context"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

// freshmesh is our own store and server, with the options, the deadlines and
// the probes that xds-server has by default. It logs warnings only.
type freshmesh struct {
	store  *snapshot.Store
	server *xds.Server
}

func newFreshmesh(_ context.Context, w *world) (contender, error) {
	var u mesh.Update
	for i, name := range w.names {
		cluster, err := clusterResource(w.clusters[i])
		if err != nil {
			return nil, err
		}
		assignment, err := assignmentResource(name, w.assignments[i])
		if err != nil {
			return nil, err
		}
		u.Put = append(u.Put, cluster, assignment)
	}
	store := snapshot.New(snapshot.Config{})
	store.Publish(u, time.Now())
	return &freshmesh{store: store, server: xds.New(xds.Config{
		Store:      store,
		Policy:     ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		Ready:      func() error { return nil },
		Logger:     hclog.New(&hclog.LoggerOptions{Level: hclog.Warn}),
		Registerer: prometheus.NewRegistry(),
	})}, nil
}

func (f *freshmesh) options() []grpc.ServerOption { return xds.ServerOptions() }

func (f *freshmesh) register(s *grpc.Server) { f.server.Register(s) }

func (f *freshmesh) apply(_ context.Context, changed *endpointv3.ClusterLoadAssignment) error {
	r, err := assignmentResource(changed.ClusterName, changed)
	if err != nil {
		return err
	}
	f.store.Publish(mesh.Update{Put: []mesh.Resource{r}}, time.Now())
	return nil
}

func clusterResource(c *clusterv3.Cluster) (mesh.Resource, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	return mesh.Resource{
		Type: mesh.TypeCluster, Name: c.Name, Body: body,
		FollowedBy: []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: c.Name}},
	}, err
}

func assignmentResource(name string, a *endpointv3.ClusterLoadAssignment) (mesh.Resource, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	return mesh.Resource{Type: mesh.TypeEndpoint, Name: name, Body: body}, err
}
