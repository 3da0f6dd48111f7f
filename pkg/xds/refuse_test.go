package xds_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// refused compares the counter of one reason.
func (r *rig) refused(reason xds.Refusal, want float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "freshmesh_streams_refused_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == string(reason) {
				if got := m.GetCounter().GetValue(); got != want {
					r.t.Errorf("%s refused %v times, want %v", reason, got, want)
				}
				return
			}
		}
	}
	r.t.Errorf("no counter for %s", reason)
}

// TestLimits: each limit ends the stream that exceeds it with a status that
// names the field and the setting, has its own counter, and harms no other stream.
func TestLimits(t *testing.T) {
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 100))}}
	tests := []struct {
		name    string
		reason  xds.Refusal
		change  func(*xds.Config)
		node    *corev3.Node
		names   []string
		code    codes.Code
		message string
	}{
		{
			name: "names", reason: xds.RefusedNames, change: func(c *xds.Config) { c.MaxNames = 3 }, node: &corev3.Node{Id: "n"},
			names: []string{"a", "b", "c"}, code: codes.ResourceExhausted, message: "more than 3 names",
		},
		{
			name: "streams", reason: xds.RefusedStreams, change: func(c *xds.Config) { c.MaxNodeStreams = 1 }, node: &corev3.Node{Id: "healthy"},
			names: []string{"a"}, code: codes.ResourceExhausted, message: `node.id: "healthy" has 1 streams open, as many as it may (--max-node-streams)`,
		},
		{
			name: "metadata", reason: xds.RefusedNodeBytes, change: func(c *xds.Config) { c.MaxNodeBytes = 100 }, node: &corev3.Node{Id: "n", Metadata: metadata},
			names: []string{"a"}, code: codes.ResourceExhausted, message: "node.metadata: 109 bytes, more than 100 (--max-node-bytes)",
		},
		{
			name: "no id", reason: xds.RefusedMalformed, node: &corev3.Node{}, names: []string{"a"},
			code: codes.InvalidArgument, message: "node.id: the first request on a stream must have one",
		},
		{
			name: "long name", reason: xds.RefusedMalformed, node: &corev3.Node{Id: "n"}, names: []string{strings.Repeat("x", 1025)},
			code: codes.InvalidArgument, message: "1025 bytes, at most 1024 are taken",
		},
	}
	for _, test := range tests {
		for _, p := range []xdstest.Protocol{xdstest.SotW, xdstest.Delta} {
			t.Run(test.name+" "+string(p), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					r := newRig(t, test.change)
					healthy := r.open(xdstest.Delta, "healthy")
					healthy.Subscribe(mesh.TypeCluster)
					healthy.ExpectAcked("cds empty")
					s := xdstest.Open(t, r.conn, p, test.node)
					s.Subscribe(mesh.TypeEndpoint, test.names...)
					if code, message := s.ExpectEnd(); code != test.code || !strings.Contains(message, test.message) {
						t.Errorf("ended with %v %q, want %v %q", code, message, test.code, test.message)
					}
					synctest.Wait()
					r.refused(test.reason, 1)
					r.put(xdstest.Resource(mesh.TypeCluster, "A", "v1"))
					healthy.ExpectAcked("cds +A@v1")
				})
			})
		}
	}
}

// TestStreamsAreGivenBack: the limit counts open streams.
func TestStreamsAreGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, func(c *xds.Config) { c.MaxNodeStreams = 1 })
		for range 3 {
			s := r.open(xdstest.Delta, "n")
			s.Subscribe(mesh.TypeCluster)
			s.ExpectAcked("cds empty")
			s.Close()
			synctest.Wait()
		}
		r.refused(xds.RefusedStreams, 0)
	})
}

// raw sends bytes as they are.
type raw struct{ encoding.CodecV2 }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// TestBytesThatAreNoRequest: what does not decode is the client's fault, and said so.
func TestBytesThatAreNoRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		for i, test := range []struct{ method, body, message string }{
			{"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources", "\xff", "request: not a DiscoveryRequest: "},
			{"/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters", "\x12\x01\xff", "request: not a DeltaDiscoveryRequest: "},
		} {
			stream, err := r.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, test.method, grpc.ForceCodecV2(raw{encoding.GetCodecV2("proto")}))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg([]byte(test.body)); err != nil {
				t.Fatal(err)
			}
			err = stream.RecvMsg(nil)
			if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), test.message) {
				t.Errorf("%q: %v", test.body, err)
			}
			r.refused(xds.RefusedMalformed, float64(i+1))
		}
	})
}

// TestNodeOfTheFirstRequest: xDS protocol, "Basic Protocol Overview": the node
// identifier is that of the stream's first request, and later ones need not have it.
func TestNodeOfTheFirstRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		s := r.open(xdstest.SotW, "first")
		s.Subscribe(mesh.TypeCluster)
		s.ExpectAcked("cds empty")
		s.Send(xdstest.Request{Type: mesh.TypeEndpoint, Names: []string{"a"}, Node: &corev3.Node{}})
		s.ExpectAcked("eds empty")
		s.Send(xdstest.Request{Type: mesh.TypeRoute, Names: []string{"a"}, Node: &corev3.Node{Id: "other"}})
		s.ExpectAcked("rds empty")
		synctest.Wait()
		if nodes := r.nodes(); len(nodes) != 1 || nodes[0].ID != "first" || len(nodes[0].Types) != 3 {
			t.Errorf("got %+v", nodes)
		}
	})
}

// TestRefusalsAreShownFromTheStart: a counter that is not there cannot be alarmed on.
func TestRefusalsAreShownFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		if n, err := testutil.GatherAndCount(r.registry, "freshmesh_streams_refused_total"); err != nil || n != 6 {
			t.Errorf("%d series, %v", n, err)
		}
	})
}
