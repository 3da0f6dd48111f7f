package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// csds asks once, and gives a line for each resource: node, type, name, the two
// statuses, the version that the client holds, what is attached, and the error.
func (r *rig) csds(request *statusv3.ClientStatusRequest) []string {
	r.t.Helper()
	response, err := statusv3.NewClientStatusDiscoveryServiceClient(r.conn).FetchClientStatus(r.t.Context(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	return describe(r.t, response)
}

func describe(t *testing.T, response *statusv3.ClientStatusResponse) []string {
	t.Helper()
	var lines []string
	for _, config := range response.GetConfig() {
		if len(config.GetGenericXdsConfigs()) == 0 {
			lines = append(lines, config.GetNode().GetId()+" nothing")
		}
		for _, c := range config.GetGenericXdsConfigs() {
			typ := mesh.Type(c.GetTypeUrl())
			line := fmt.Sprintf("%s %s %s %s %s", config.GetNode().GetId(), typ.Short(), c.GetName(), c.GetConfigStatus(), c.GetClientStatus())
			for _, label := range []string{"v1", "v2", "v3"} {
				if c.GetVersionInfo() == string(mesh.VersionOf(xdstest.Resource(typ, c.GetName(), label).Body)) {
					line += " holds " + label
				}
			}
			if c.GetXdsConfig() != nil {
				_, label, err := xdstest.Describe(typ, c.GetXdsConfig().GetValue())
				if err != nil || c.GetXdsConfig().GetTypeUrl() != c.GetTypeUrl() {
					t.Errorf("%s: attached %v, %v", line, c.GetXdsConfig(), err)
				}
				line += " attached " + label
			}
			if e := c.GetErrorState(); e != nil {
				line += " error: " + e.GetDetails()
				if e.GetLastUpdateAttempt() == nil || e.GetVersionInfo() == "" {
					t.Errorf("%s: incomplete %v", line, e)
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func (r *rig) wantCSDS(want ...string) {
	r.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, r.csds(&statusv3.ClientStatusRequest{})); diff != "" {
		r.t.Errorf("csds (-want +got):\n%s", diff)
	}
}

// TestClientStatus: each status of envoy.service.status.v3 and envoy.admin.v3,
// as csds.proto and config_dump_shared.proto define them.
func TestClientStatus(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.wantCSDS()
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "v1"), xdstest.Resource(mesh.TypeCluster, "c", "v1"))
		s := r.open(xdstest.Delta, "n")
		s.Subscribe(mesh.TypeEndpoint, "a")
		sent := s.ExpectText("eds +a@v1")
		r.wantCSDS("n eds a STALE REQUESTED attached v1")
		s.Ack(sent)
		r.wantCSDS("n eds a SYNCED ACKED holds v1 attached v1")

		// Sent again and not answered: the old form is still held.
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "v2"))
		sent = s.ExpectText("eds +a@v2")
		r.wantCSDS("n eds a STALE ACKED holds v1 attached v2")
		// What comes meanwhile is not sent.
		s.Subscribe(mesh.TypeEndpoint, "b")
		r.wantCSDS("n eds a STALE ACKED holds v1 attached v2", "n eds b NOT_SENT REQUESTED")

		s.Nack(sent, "a is bad")
		s.ExpectAcked("eds -b")
		r.wantCSDS("n eds a ERROR NACKED holds v1 attached v2 error: a is bad", "n eds b SYNCED DOES_NOT_EXIST")

		// The error goes with the next version.
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "v3"))
		s.ExpectAcked("eds +a@v3")
		r.wantCSDS("n eds a SYNCED ACKED holds v3 attached v3", "n eds b SYNCED DOES_NOT_EXIST")

		// A wildcard shows what there is, and what is being removed.
		s.Unsubscribe(mesh.TypeEndpoint, "a", "b")
		s.Subscribe(mesh.TypeCluster, "*")
		s.ExpectAcked("cds +c@v1")
		r.wantCSDS("n cds c SYNCED ACKED holds v1 attached v1")
		r.store.Publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeCluster, Name: "c"}}}}, time.Now())
		sent = s.ExpectText("cds -c")
		r.wantCSDS("n cds c STALE ACKED holds v1")
		s.Ack(sent)
		r.wantCSDS("n nothing")

		// State of the world has no word for the absence of an assignment.
		w := r.open(xdstest.SotW, "w")
		w.Subscribe(mesh.TypeEndpoint, "b")
		w.ExpectAcked("eds empty")
		r.wantCSDS("n nothing", "w eds b NOT_SENT REQUESTED")
		// A node that has gone has no status.
		w.Close()
		r.wantCSDS("n nothing")
	})
}

// TestClientStatusOfSeveralStreams: one node is one ClientConfig, whatever its streams.
func TestClientStatusOfSeveralStreams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "v1"), xdstest.Resource(mesh.TypeCluster, "a", "v1"))
		clusters := xdstest.OpenOnly(t, r.conn, xdstest.SotW, mesh.TypeCluster, &corev3.Node{Id: "n"})
		clusters.Subscribe(mesh.TypeCluster)
		clusters.ExpectAcked("cds +a@v1")
		endpoints := xdstest.OpenOnly(t, r.conn, xdstest.Delta, mesh.TypeEndpoint, &corev3.Node{Id: "n"})
		endpoints.Subscribe(mesh.TypeEndpoint, "a")
		endpoints.ExpectText("eds +a@v1")
		r.wantCSDS("n cds a SYNCED ACKED holds v1 attached v1", "n eds a STALE REQUESTED attached v1")
	})
}

// TestClientStatusSelection: node_matchers, contents left out, secrets never
// shown, and each request on a stream answered.
func TestClientStatusSelection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeEndpoint, "a", "v1"), mesh.Resource{Type: xds.TypeSecret, Name: "key", Body: []byte("\n\x03key")})
		for _, id := range []string{"web-1", "web-2", "db-1"} {
			s := r.open(xdstest.Delta, id)
			s.Subscribe(mesh.TypeEndpoint, "a")
			s.ExpectAcked("eds +a@v1")
		}
		synctest.Wait()
		stream, err := statusv3.NewClientStatusDiscoveryServiceClient(r.conn).StreamClientStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			matcher *matcherv3.StringMatcher
			want    string
		}{
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "web-2"}}, "web-2"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "WEB-2"}, IgnoreCase: true}, "web-2"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "web-"}}, "web-1 web-2"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "-1"}}, "db-1 web-1"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: "b"}}, "db-1 web-1 web-2"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "web|db-[0-9]"}}}, "db-1"},
			{&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "none"}}, ""},
		} {
			request := &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: test.matcher}}, ExcludeResourceContents: true}
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			response, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for id := range strings.FieldsSeq(test.want) {
				want = append(want, id+" eds a SYNCED ACKED holds v1")
			}
			if diff := cmp.Diff(want, describe(t, response)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", test.matcher, diff)
			}
		}
		for field, m := range map[string]*matcherv3.NodeMatcher{
			"node_matchers[0].node_metadatas": {NodeMetadatas: []*matcherv3.StructMatcher{{}}},
			"node_matchers[0].node_id":        {NodeId: &matcherv3.StringMatcher{}},
		} {
			_, err := statusv3.NewClientStatusDiscoveryServiceClient(r.conn).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{m}})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field+": ") {
				t.Errorf("%s: %v", field, err)
			}
		}
		s := r.open(xdstest.Delta, "tls")
		s.Send(xdstest.Request{Type: xds.TypeSecret, Subscribe: []string{"key"}})
		synctest.Wait()
		got := r.csds(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "tls"}}}}})
		if want := []string{"tls " + string(xds.TypeSecret) + " key STALE REQUESTED"}; !cmp.Equal(got, want) {
			t.Errorf("a secret: %q, want %q", got, want)
		}
	})
}
