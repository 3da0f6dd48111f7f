package controlplane_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// objects is a source that a test moves by hand. Several control planes may run on it.
type objects struct {
	mu    sync.Mutex // guards what follows
	held  map[mesh.Key]mesh.Object
	sinks []mesh.Sink
}

func newObjects(all ...mesh.Object) *objects {
	o := &objects{held: make(map[mesh.Key]mesh.Object)}
	o.put(all...)
	return o
}

func (*objects) Name() string { return "files" }

func (o *objects) Run(ctx context.Context, sink mesh.Sink) error {
	o.mu.Lock()
	o.sinks = append(o.sinks, sink)
	for _, held := range o.held {
		sink.Put(held)
	}
	sink.Synced()
	o.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (*objects) Status() mesh.SourceStatus { return mesh.SourceStatus{Synced: true, Connected: true} }

func (*objects) Read(context.Context, mesh.Key) ([]mesh.Object, error) { return nil, nil }

func (o *objects) put(all ...mesh.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, object := range all {
		o.held[object.Metadata().Key] = object
		for _, sink := range o.sinks {
			sink.Put(object)
		}
	}
}

func (o *objects) remove(key mesh.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, key)
	for _, sink := range o.sinks {
		sink.Delete(mesh.Meta{Key: key})
	}
}

func key(kind mesh.Kind, name string) mesh.Key {
	return mesh.Key{Kind: kind, Namespace: "default", Name: name}
}

func serviceOf(name string) *mesh.Service {
	return &mesh.Service{
		Meta: mesh.Meta{Key: key(mesh.KindService, name)}, Selector: true,
		Ports: []mesh.ServicePort{{Name: "http", Port: 8080, Protocol: "TCP"}},
	}
}

// at is one pod's endpoint in a slice.
type at struct {
	pod, ip string
	// terminating: it serves, and is not ready.
	terminating bool
}

func sliceOf(service string, endpoints ...at) *mesh.EndpointSlice {
	s := &mesh.EndpointSlice{
		Meta: mesh.Meta{Key: key(mesh.KindEndpointSlice, service+"-1")}, Service: service, AddressType: "IPv4",
		Ports: []mesh.SlicePort{{Name: "http", Port: 8080, Protocol: "TCP"}},
	}
	for _, e := range endpoints {
		ready, serving := !e.terminating, true
		s.Endpoints = append(s.Endpoints, mesh.SliceEndpoint{
			Addresses: []netip.Addr{netip.MustParseAddr(e.ip)}, Pod: key(mesh.KindPod, e.pod),
			Ready: &ready, Serving: &serving, Terminating: &e.terminating,
		})
	}
	return s
}

// plane is a control plane in a synctest bubble.
type plane struct {
	*controlplane.Server
	conn *grpc.ClientConn
}

func startPlane(t *testing.T, source mesh.Source, edits ...func(*controlplane.Config)) plane {
	t.Helper()
	c := controlplane.Config{
		Source: source, ClusterDomain: "cluster.local", Policy: meshtest.Policy, Build: "test",
		Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(),
	}
	for _, edit := range edits {
		edit(&c)
	}
	ctx, stop := context.WithCancel(context.Background())
	xds, admin := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	p := plane{Server: controlplane.New(c)}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, xds, admin) }()
	conn, err := grpc.NewClient("passthrough:///plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return xds.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	p.conn = conn
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	synctest.Wait()
	return p
}

func (p plane) open(t *testing.T, protocol xdstest.Protocol, node string) *xdstest.Stream {
	t.Helper()
	return xdstest.Open(t, p.conn, protocol, &corev3.Node{Id: node})
}
