package controlplane_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
	"github.com/freshmesh/freshmesh/pkg/xds"
)

const patience = 10 * time.Second

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// synced waits until the control plane serves.
func synced(t *testing.T, c *meshtest.Control) {
	t.Helper()
	testwait.Within(t, patience, "synced", func() bool { return c.Audit(t).Server.Synced })
}

func save(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

const runtimeType mesh.Type = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

// TestStaticResources: resources of any type come from files, beside those of
// Kubernetes and over them, and what is wrong with them is told.
func TestStaticResources(t *testing.T) {
	manifests, dir := meshtest.NewManifests(t), t.TempDir()
	manifests.Service("echo", "10.0.0.1:8080")
	const echo = "echo.default.svc.cluster.local:8080"
	save(t, dir, "a.yaml", "'@type': "+string(runtimeType)+"\nname: rt\nlayer: {a: 1}\n---\n"+
		"'@type': "+string(xds.TypeSecret)+"\nname: key\ngeneric_secret: {secret: {inline_string: confidential}}\n---\n"+
		"'@type': "+string(mesh.TypeCluster)+"\nname: "+echo+"\nalt_stat_name: from a file\nconect_timeout: 1s\n")
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy, func(c *controlplane.Config) {
		c.Static = static.New(static.Config{Dir: dir})
	})
	synced(t, control)

	got := meshtest.Get(t, control.Admin, "/resources?type=cds&name="+echo)
	if !strings.Contains(got, "from a file") || !strings.Contains(got, `"cause": "file a.yaml"`) {
		t.Errorf("the static cluster is not served: %s", got)
	}
	if got := meshtest.Get(t, control.Admin, "/resources?type="+string(runtimeType)); !strings.Contains(got, `"a": 1`) {
		t.Errorf("runtime: %s", got)
	}
	if got := meshtest.Get(t, control.Admin, "/resources?type="+string(xds.TypeSecret)); strings.Contains(got, "confidential") || !strings.Contains(got, `"key"`) {
		t.Errorf("a secret is to be named and not shown: %s", got)
	}
	var problems []string
	for _, p := range control.Audit(t).Server.Problems {
		problems = append(problems, p.String())
	}
	for _, want := range []string{
		`file a.yaml: line 12: envoy.config.cluster.v3.Cluster: unknown field "conect_timeout", ignored`,
		"file a.yaml: line 9: cds " + echo + " is also made of Service default/echo; the static one is served",
	} {
		if !slices.Contains(problems, want) {
			t.Errorf("no problem %q in %q", want, problems)
		}
	}

	// A node gets the secret, and its changes; the audit tells of types by their URL.
	s := xdstest.Open(t, connect(t, control.XDS), xdstest.Delta, &corev3.Node{Id: "n"})
	s.Subscribe(runtimeType, "rt")
	first := s.Expect()
	s.Ack(first)
	save(t, dir, "b.yaml", "'@type': "+string(runtimeType)+"\nname: later\n")
	s.Subscribe(runtimeType, "later")
	for r := s.Expect(); len(r.Resources) == 0; r = s.Expect() {
		s.Ack(r) // it did not exist yet
	}
	if types := control.Audit(t).Nodes[0].Types; len(types) != 1 || types[0].Type != string(runtimeType) {
		t.Errorf("audit: %+v", types)
	}

	// Without the file the generated cluster is served again.
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	testwait.Within(t, patience, "the generated cluster", func() bool {
		return !strings.Contains(meshtest.Get(t, control.Admin, "/resources?type=cds&name="+echo), "from a file")
	})
	if left := control.Audit(t).Server.Problems; len(left) > 0 {
		t.Errorf("problems left: %v", left)
	}
}

// TestStaticListenerWins: the listener that a node's metadata asks for gives way
// to a static one of its name, and the change of a static cluster is followed by its assignment.
func TestStaticListenerWins(t *testing.T) {
	dir := t.TempDir()
	control := meshtest.StartControl(t, meshtest.NewManifests(t).Source(), meshtest.Policy, func(c *controlplane.Config) {
		c.Static = static.New(static.Config{Dir: dir})
	})
	synced(t, control)
	conn := connect(t, control.XDS)
	envoy := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: "e", UserAgentName: "envoy"})
	envoy.Subscribe(mesh.TypeListener)
	envoy.ExpectAcked("lds +outbound@")
	save(t, dir, "a.yaml", "'@type': "+string(mesh.TypeListener)+"\nname: outbound\nstat_prefix: mine\n---\n"+
		"'@type': "+string(mesh.TypeCluster)+"\nname: c\ntype: EDS\neds_cluster_config: {service_name: shared}\nalt_stat_name: v1\n---\n"+
		"'@type': "+string(mesh.TypeEndpoint)+"\ncluster_name: shared\n")
	envoy.ExpectAcked("lds +outbound@mine")

	s := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: "n"})
	s.Subscribe(mesh.TypeEndpoint, "shared")
	s.ExpectAcked("eds +shared@")
	s.Subscribe(mesh.TypeCluster, "c")
	s.ExpectAcked("cds +c@v1")
	s.ExpectAcked("eds +shared@")
	save(t, dir, "b.yaml", "'@type': "+string(runtimeType)+"\nname: unrelated\n")
	save(t, dir, "a.yaml", "'@type': "+string(mesh.TypeCluster)+"\nname: c\ntype: EDS\neds_cluster_config: {service_name: shared}\nalt_stat_name: v2\n---\n"+
		"'@type': "+string(mesh.TypeEndpoint)+"\ncluster_name: shared\n")
	s.ExpectAcked("cds +c@v2")
	s.ExpectAcked("eds +shared@")
	envoy.ExpectAcked("lds +outbound@")
}

// never is a source that does not sync.
type never struct{ mesh.Source }

func (never) Name() string                               { return "never" }
func (never) Status() mesh.SourceStatus                  { return mesh.SourceStatus{Reason: "asleep"} }
func (never) Run(ctx context.Context, _ mesh.Sink) error { <-ctx.Done(); return nil }

func healthOf(t *testing.T, conn *grpc.ClientConn, service string) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatalf("health of %q: %v", service, err)
	}
	return r.GetStatus()
}

const adsService = "envoy.service.discovery.v3.AggregatedDiscoveryService"

func TestHealth(t *testing.T) {
	asleep := connect(t, meshtest.StartControl(t, never{}, meshtest.Policy).XDS)
	control := meshtest.StartControl(t, meshtest.NewManifests(t).Source(), meshtest.Policy)
	synced(t, control)
	awake := connect(t, control.XDS)
	for _, service := range []string{"", adsService, "envoy.service.cluster.v3.ClusterDiscoveryService", "envoy.service.status.v3.ClientStatusDiscoveryService"} {
		if got := healthOf(t, asleep, service); got != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("before the sync %q is %v", service, got)
		}
		testwait.Within(t, patience, "serving", func() bool { return healthOf(t, awake, service) == healthv1.HealthCheckResponse_SERVING })
	}
	if _, err := healthv1.NewHealthClient(awake).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "no.such.Service"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
	stream := xdstest.Open(t, asleep, xdstest.SotW, &corev3.Node{Id: "n"})
	stream.Subscribe(mesh.TypeCluster)
	if code, message := stream.ExpectEnd(); code != codes.Unavailable || message != "source never has not synced yet: asleep" {
		t.Errorf("before the sync: %v %q", code, message)
	}
}

// reflected asks the server itself for what a call needs, as grpcurl does, and
// knows nothing of its protos beforehand.
type reflected struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[reflectionv1.ServerReflectionRequest, reflectionv1.ServerReflectionResponse]
}

func reflect(t *testing.T, conn *grpc.ClientConn) *reflected {
	t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &reflected{t: t, conn: conn, stream: stream}
}

func (r *reflected) ask(request *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
	r.t.Helper()
	if err := r.stream.Send(request); err != nil {
		r.t.Fatal(err)
	}
	response, err := r.stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	if e := response.GetErrorResponse(); e != nil {
		r.t.Fatalf("reflection: %v", e)
	}
	return response
}

func (r *reflected) services() []string {
	var out []string
	list := r.ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	for _, s := range list.GetListServicesResponse().GetService() {
		out = append(out, s.GetName())
	}
	return out
}

// service gives a service's descriptor, with the files that it needs.
func (r *reflected) service(name string) protoreflect.ServiceDescriptor {
	r.t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var needed []string
	add := func(response *reflectionv1.ServerReflectionResponse) {
		for _, raw := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, file); err != nil {
				r.t.Fatal(err)
			}
			if !seen[file.GetName()] {
				seen[file.GetName()] = true
				set.File, needed = append(set.File, file), append(needed, file.GetDependency()...)
			}
		}
	}
	add(r.ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}))
	for len(needed) > 0 {
		name := needed[0]
		if needed = needed[1:]; !seen[name] {
			add(r.ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name}}))
		}
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return d.(protoreflect.ServiceDescriptor)
}

// call makes a unary call with JSON in and out.
func (r *reflected) call(service, method, request string) string {
	r.t.Helper()
	m := r.service(service).Methods().ByName(protoreflect.Name(method))
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		r.t.Fatal(err)
	}
	if err := r.conn.Invoke(r.t.Context(), "/"+service+"/"+method, in, out); err != nil {
		r.t.Fatal(err)
	}
	return strings.ReplaceAll(protojson.MarshalOptions{}.Format(out), " ", "")
}

// TestReflection: a tool that knows nothing of the server lists its services and
// calls CSDS.
func TestReflection(t *testing.T) {
	control := meshtest.StartControl(t, meshtest.NewManifests(t).Source(), meshtest.Policy)
	synced(t, control)
	conn := connect(t, control.XDS)
	s := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: "n"})
	s.Subscribe("type.googleapis.com/google.protobuf.StringValue", "x")
	s.Expect()

	r := reflect(t, conn)
	services := r.services()
	for _, want := range []string{
		adsService, "envoy.service.cluster.v3.ClusterDiscoveryService", "envoy.service.endpoint.v3.EndpointDiscoveryService",
		"envoy.service.listener.v3.ListenerDiscoveryService", "envoy.service.route.v3.RouteDiscoveryService",
		"envoy.service.status.v3.ClientStatusDiscoveryService", "envoy.service.load_stats.v3.LoadReportingService", "grpc.health.v1.Health",
	} {
		if !slices.Contains(services, want) {
			t.Errorf("%s is not listed in %q", want, services)
		}
	}
	if slices.Contains(services, "grpc.channelz.v1.Channelz") {
		t.Error("channelz is on without having been asked for")
	}
	got := r.call("envoy.service.status.v3.ClientStatusDiscoveryService", "FetchClientStatus", `{"nodeMatchers":[{"nodeId":{"exact":"n"}}]}`)
	if want := `{"config":[{"node":{"id":"n"},"genericXdsConfigs":[{"typeUrl":"type.googleapis.com/google.protobuf.StringValue","name":"x","configStatus":"STALE","clientStatus":"REQUESTED"}]}]}`; got != want {
		t.Errorf("csds by reflection:\n%s\nwant\n%s", got, want)
	}
	// Every service can be described, as `grpcurl describe` does.
	for _, service := range services {
		if r.service(service).Methods().Len() == 0 {
			t.Errorf("%s has no methods", service)
		}
	}
}

func TestChannelzWhenAskedFor(t *testing.T) {
	control := meshtest.StartControl(t, meshtest.NewManifests(t).Source(), meshtest.Policy, func(c *controlplane.Config) { c.Channelz = true })
	if services := reflect(t, connect(t, control.XDS)).services(); !slices.Contains(services, "grpc.channelz.v1.Channelz") {
		t.Errorf("channelz is not listed in %q", services)
	}
}

// TestRequestSize: a request that is too large ends its stream with a reason,
// and is counted.
func TestRequestSize(t *testing.T) {
	control := meshtest.StartControl(t, meshtest.NewManifests(t).Source(), meshtest.Policy, func(c *controlplane.Config) { c.MaxRequestBytes = 4096 })
	synced(t, control)
	s := xdstest.Open(t, connect(t, control.XDS), xdstest.Delta, &corev3.Node{Id: "n"})
	s.Subscribe(mesh.TypeEndpoint, strings.Repeat("x", 8192))
	code, message := s.ExpectEnd()
	if code != codes.ResourceExhausted || !strings.Contains(message, "larger than max (8268 vs. 4096)") {
		t.Errorf("got %v %q", code, message)
	}
	// gRPC tells the client while the handler is still on its way out.
	testwait.Within(t, patience, "the refusal counted", func() bool {
		return strings.Contains(meshtest.Get(t, control.Admin, "/metrics"), `freshmesh_streams_refused_total{reason="message_bytes"} 1`)
	})
	var m discoveryv3.DiscoveryResponse
	err := connect(t, control.XDS).Invoke(t.Context(), "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters", &discoveryv3.DiscoveryRequest{}, &m)
	if want := "FetchClusters: polling is not served; use StreamClusters or DeltaClusters"; status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != want {
		t.Errorf("REST: %v", err)
	}
}
