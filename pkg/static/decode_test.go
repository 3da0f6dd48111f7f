package static

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	cluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	secret   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	listener = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// response is as Envoy's own documentation writes such a file.
const response = `version_info: "0"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: some_service
  connect_timeout: 0.25s
  lb_policy: ROUND_ROBIN
  type: EDS
  eds_cluster_config:
    eds_config: {ads: {}}
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: other
  type: EDS
  edsClusterConfig: {serviceName: shared}
`

func TestParse(t *testing.T) {
	tests := []struct {
		name, file, text string
		// want has one line for each resource and finding.
		want []string
	}{
		{"empty", "a.yaml", "", nil},
		{"comments and markers only", "a.yaml", "# nothing\n---\n---\n", nil},
		{"response", "a.yaml", response, []string{"3 cds some_service then eds some_service", "10 cds other then eds shared"}},
		{"response with its own type", "a.yaml", "'@type': type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse\nresources: []\n", nil},
		{"response with a typo", "a.yaml", "versioninfo: 1\nresources: []\n", []string{`warn 1 DiscoveryResponse: unknown field "versioninfo", ignored`}},
		{"json with tabs", "a.json", "{\n\t\"resources\": [\n\t\t{\"@type\": \"" + cluster + "\",\n\t\t\"name\": \"a\"}]}", []string{"3 cds a"}},
		{"json in yaml", "a.yaml", `{"@type": "` + cluster + `", "name": "a"}`, []string{"1 cds a"}},
		{"json values in a row", "a.json", "{\"@type\": \"" + cluster + "\", \"name\": \"a\"}\n{\"@type\": \"" + cluster + "\", \"name\": \"b\"}\n", []string{"1 cds a", "2 cds b"}},
		{"one a document", "a.yaml", "'@type': " + cluster + "\nname: a\n---\n'@type': " + listener + "\nname: any name / at all\n", []string{"1 cds a", "4 lds any name / at all"}},
		{"assignment", "a.yaml", "'@type': " + string(mesh.TypeEndpoint) + "\ncluster_name: a\n", []string{"1 eds a"}},
		{"route", "a.yaml", "'@type': " + string(mesh.TypeRoute) + "\nname: a\n", []string{"1 rds a"}},
		{"rtds", "a.yaml", "'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\nname: rt\nlayer: {health_check.min_interval: 5}\n", []string{"1 type.googleapis.com/envoy.service.runtime.v3.Runtime rt"}},
		{
			"a secret that does not decode is not repeated", "a.yaml", "'@type': " + secret + "\nname: s\ngeneric_secret: {secret: {inline_bytes: 'hush!!!'}}\n",
			[]string{"fatal 3 envoy.extensions.transport_sockets.tls.v3.Secret: invalid value for bytes field inlineBytes"},
		},
		{"sds", "a.yaml", "'@type': " + secret + "\nname: s\ngeneric_secret: {secret: {inline_string: x}}\n", []string{"1 " + secret + " s"}},
		{"ecds", "a.yaml", "'@type': type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\nname: f\ntyped_config:\n  '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua\n  default_source_code: {inline_string: ''}\n", []string{"1 type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig f"}},
		{"srds", "a.yaml", "'@type': type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration\nname: s\nroute_configuration_name: r\n", []string{"1 type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration s"}},
		{
			"vhds, named by its wrapper", "a.yaml", "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: routes/host\nresource:\n  '@type': type.googleapis.com/envoy.config.route.v3.VirtualHost\n  name: host\n",
			[]string{"1 type.googleapis.com/envoy.config.route.v3.VirtualHost routes/host"},
		},
		{"leds without a name", "a.yaml", "'@type': type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint\n", []string{"fatal 1 envoy.config.endpoint.v3.LbEndpoint: no name; a message that has none of its own stands in a envoy.service.discovery.v3.Resource"}},
		{"empty wrapper", "a.yaml", "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: x\n", []string{"fatal 1 envoy.service.discovery.v3.Resource: resource: proto: invalid empty type URL"}},
		{
			"unknown fields", "a.yaml", "resources:\n- '@type': " + cluster + "\n  name: a\n  conect_timeout: 1s\n\n  eds_cluster_config:\n    servicename: x\n  metadata: {filter_metadata: {a: {conect_timeout: 1s}}}\n- '@type': " + cluster + "\n  name: b\n",
			[]string{"2 cds a", "9 cds b", `warn 4 envoy.config.cluster.v3.Cluster: unknown field "conect_timeout", ignored`, `warn 7 envoy.config.cluster.v3.Cluster: unknown field "servicename", ignored`},
		},
		{
			"unknown field in an extension", "a.yaml", "'@type': " + cluster + "\nname: ä\ntransport_socket:\n  name: tls\n  typed_config: {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, ü: ä, sni: x, sn: y}\n",
			[]string{"1 cds ä", `warn 5 envoy.config.cluster.v3.Cluster: unknown field "ü", ignored`, `warn 5 envoy.config.cluster.v3.Cluster: unknown field "sn", ignored`},
		},
		{"unknown type", "a.yaml", "\n'@type': type.googleapis.com/envoy.config.cluster.v3.Clutter\nname: a\n", []string{`fatal 2 envoy.config.cluster.v3.Clutter: type "type.googleapis.com/envoy.config.cluster.v3.Clutter" is unknown`}},
		{
			"unknown type inside", "a.yaml", "'@type': " + cluster + "\nname: a\n# here\ntransport_socket:\n  name: tls\n  typed_config:\n    '@type': type.googleapis.com/x.Y\n",
			[]string{`fatal 7 envoy.config.cluster.v3.Cluster: type "type.googleapis.com/x.Y" is unknown`},
		},
		{"wrong value", "a.yaml", "'@type': " + cluster + "\nname: a\ntype: NO_SUCH\n", []string{"fatal 3 envoy.config.cluster.v3.Cluster: invalid value for enum field type: \"NO_SUCH\""}},
		{"json wrong value", "a.json", "[\n]", []string{`fatal 1 neither a resource (with "@type") nor a DiscoveryResponse (with resources)`}},
		{"no name", "a.yaml", "'@type': " + cluster + "\n", []string{"fatal 1 envoy.config.cluster.v3.Cluster: no name; a message that has none of its own stands in a envoy.service.discovery.v3.Resource"}},
		{"no type", "a.yaml", "resources:\n- name: a\n- x\n", []string{`fatal 2 a resource without "@type"`, `fatal 3 a resource without "@type"`}},
		{"a Kubernetes object", "a.yaml", "kind: Service\n", []string{`fatal 1 neither a resource (with "@type") nor a DiscoveryResponse (with resources)`}},
		{"resources is no list", "a.yaml", "x: 1\nresources: {}\n", []string{"fatal 2 resources: not a list"}},
		{"syntax", "a.yaml", "'@type': " + cluster + "\nname: a\n---\na: b\n  c: d\n", []string{"1 cds a", "fatal 5 mapping values are not allowed in this context"}},
		{"key twice", "a.yaml", "'@type': " + cluster + "\nname: a\nname: b\n", []string{`fatal 3 envoy.config.cluster.v3.Cluster: duplicate field "name"`}},
		{"json cut short", "a.json", "{\n\"resources\": [", []string{"fatal 2 unexpected EOF"}},
		{"json syntax", "a.json", "{\n\"a\": ]\n}", []string{"fatal 2 invalid character ']' looking for beginning of value"}},
		{"merge key", "a.yaml", "x: &x {name: a}\nresources:\n- '@type': " + cluster + "\n  <<: *x\n", []string{
			`fatal 4 envoy.config.cluster.v3.Cluster: merge keys (<<) are not supported`, `warn 1 DiscoveryResponse: unknown field "x", ignored`,
		}},
		{"alias to itself", "a.yaml", "'@type': " + cluster + "\nname: a\nmetadata: &m {filter_metadata: *m}\n", []string{"fatal 3 envoy.config.cluster.v3.Cluster: nested deeper than 200"}},
		{"numbers", "a.yaml", "'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\nname: rt\nlayer: {a: 0x10, b: 0o17, c: 1_000, d: 1e3, e: .5, f: true, g: ~, h: 2026-11-30}\n", []string{"1 type.googleapis.com/envoy.service.runtime.v3.Runtime rt"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(tt.file, []byte(tt.text))
			var got []string
			for _, item := range c.Items {
				line := fmt.Sprintf("%d %s", item.Line, item.Key)
				for _, f := range item.Value.FollowedBy {
					line += " then " + f.String()
				}
				got = append(got, line)
			}
			var bad []string
			for _, f := range c.Findings {
				severity := "warn"
				if f.Fatal {
					severity = "fatal"
				}
				bad = append(bad, fmt.Sprintf("%s %d %s", severity, f.Line, f.Reason))
			}
			if tt.name == "merge key" {
				bad[0], bad[1] = bad[1], bad[0]
			}
			if diff := cmp.Diff(tt.want, append(got, bad...)); diff != "" {
				t.Errorf("parse (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBodies: what is served is the message, its extensions included.
func TestBodies(t *testing.T) {
	c := parse("a.yaml", []byte(response))
	want := &clusterv3.Cluster{}
	if err := protojson.Unmarshal([]byte(`{"name":"some_service","connectTimeout":"0.250s","type":"EDS","edsClusterConfig":{"edsConfig":{"ads":{}}}}`), want); err != nil {
		t.Fatal(err)
	}
	got := &clusterv3.Cluster{}
	if err := proto.Unmarshal(c.Items[0].Value.Body, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbers(t *testing.T) {
	c := parse("a.yaml", []byte("'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\nname: rt\nlayer: {a: 0x10, b: 0o17, c: 1_000, d: 1e3, e: .5, f: true, g: ~, h: 2026-11-30}\n"))
	m, err := (&anypb.Any{TypeUrl: string(c.Items[0].Key.Type), Value: c.Items[0].Value.Body}).UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(protojson.MarshalOptions{}.Format(m), " ", "")
	if want := `{"name":"rt","layer":{"a":16,"b":15,"c":1000,"d":1000,"e":0.5,"f":true,"g":null,"h":"2026-11-30"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAliasesAreBounded: a few lines must not come to gigabytes.
func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\nname: rt\nlayer:\n  a0: &a0 [xxxxxxxxxxxxxxxx]\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	c := parse("a.yaml", []byte(b.String()))
	if len(c.Findings) != 1 || !strings.Contains(c.Findings[0].Reason, "more than") {
		t.Errorf("findings %v, want one about the size", c.Findings)
	}
}

// FuzzParse: whatever stands in a file, there is no panic, lines are within the
// file, and the same text gives the same.
func FuzzParse(f *testing.F) {
	f.Add(true, []byte(response))
	f.Add(true, []byte("'@type': "+cluster+"\nname: a\nconect_timeout: 1s\nmetadata: {filter_metadata: {a: &x [1, .5, ~], b: *x}}\n---\n? [a]\n: b\n"))
	f.Add(true, []byte("'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: n\nresource: {'@type': "+listener+", name: l}\n"))
	f.Add(false, []byte(`{"resources":[{"@type":"`+cluster+`","name":"a","x":{"y":[null,1e9]}}]} {`))
	f.Fuzz(func(t *testing.T, isYAML bool, data []byte) {
		name := "a.json"
		if isYAML {
			name = "a.yaml"
		}
		c := parse(name, data)
		lines := strings.Count(strings.ReplaceAll(string(data), "\r", "\n"), "\n") + 1
		for _, found := range c.Findings {
			if found.Line < 1 || found.Line > lines+1 {
				t.Errorf("finding %+v in a text of %d lines", found, lines)
			}
		}
		for _, item := range c.Items {
			if item.Key.Name == "" || item.Line < 1 || item.Value.Name != item.Key.Name {
				t.Errorf("item %+v", item)
			}
			m, err := (&anypb.Any{TypeUrl: string(item.Key.Type), Value: item.Value.Body}).UnmarshalNew()
			if err != nil {
				t.Errorf("%s: %v", item.Key, err)
			}
			_ = m
		}
		if diff := cmp.Diff(c, parse(name, data)); diff != "" {
			t.Errorf("parsed twice: %s", diff)
		}
	})
}
