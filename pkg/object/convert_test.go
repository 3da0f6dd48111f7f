package object

import (
	"net/netip"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode reads one object as a source would.
func decode(t *testing.T, text string) runtime.Object {
	t.Helper()
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return o
}

var equal = []cmp.Option{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func TestConvert(t *testing.T) {
	tests := []struct {
		name, in string
		want     mesh.Object
		problems []mesh.Problem
	}{
		{
			name: "service with everything",
			in: `
apiVersion: v1
kind: Service
metadata:
  name: echo
  namespace: demo
  uid: u1
  resourceVersion: "7"
  annotations: {freshmesh.dev/lb-policy: random, other.dev/x: text}
  managedFields:
  - {manager: a, operation: Update, apiVersion: v1, time: "2026-01-02T03:04:05Z"}
  - {manager: b, operation: Update, apiVersion: v1, time: "2026-01-01T03:04:05Z"}
spec:
  clusterIP: None
  selector: {app: echo}
  publishNotReadyAddresses: true
  internalTrafficPolicy: Local
  trafficDistribution: PreferSameZone
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  ports:
  - {name: http, port: 8080, appProtocol: kubernetes.io/h2c}
  - {name: dns, port: 8080, protocol: UDP}
`,
			want: &mesh.Service{
				Meta: mesh.Meta{
					Key: mesh.Key{Kind: "Service", Namespace: "demo", Name: "echo"}, UID: "u1", ResourceVersion: "7",
					ChangedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ChangedBy: mesh.ByManagedFields,
				},
				Headless: true, Selector: true, PublishNotReadyAddresses: true, InternalTrafficLocal: true,
				TrafficDistribution: "PreferSameZone", ClientIPAffinity: true, ClientIPAffinityTimeout: time.Minute,
				Ports: []mesh.ServicePort{
					{Name: "http", Port: 8080, Protocol: "TCP", AppProtocol: "kubernetes.io/h2c"},
					{Name: "dns", Port: 8080, Protocol: "UDP"},
				},
				Annotations: map[string]string{"lb-policy": "random"},
			},
		},
		{
			name: "service with bad parts keeps the good ones",
			in: `
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: Magic
  internalTrafficPolicy: Global
  trafficDistribution: Far
  sessionAffinity: Cookie
  ports:
  - {name: a, port: 0}
  - {name: b, port: 65536}
  - {name: c, port: 80, protocol: QUIC}
  - {name: d, port: 80, appProtocol: "not a name"}
  - {name: d, port: 81}
  - {name: e, port: 80}
`,
			want: &mesh.Service{
				Meta:  mesh.Meta{Key: mesh.Key{Kind: "Service", Namespace: "default", Name: "echo"}},
				Ports: []mesh.ServicePort{{Name: "d", Port: 80, Protocol: "TCP"}},
			},
			problems: fields("Service default/echo", "spec.type", "spec.internalTrafficPolicy", "spec.trafficDistribution",
				"spec.ports[0].port", "spec.ports[1].port", "spec.ports[2].protocol", "spec.ports[3].appProtocol",
				"spec.ports[4].name", "spec.ports[5].port", "spec.sessionAffinity"),
		},
		{
			name: "external name",
			in: `
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {type: ExternalName, externalName: DB.Example.com., ports: [{port: 5432}]}
`,
			want: &mesh.Service{
				Meta: mesh.Meta{Key: mesh.Key{Kind: "Service", Namespace: "default", Name: "db"}},
				Type: "ExternalName", ExternalName: "db.example.com",
				Ports: []mesh.ServicePort{{Port: 5432, Protocol: "TCP"}},
			},
		},
		{
			name: "slice with everything",
			in: `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: echo-1
  namespace: demo
  labels: {kubernetes.io/service-name: echo}
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-02-02T02:02:02.5Z"}
addressType: IPv4
ports:
- {name: http, port: 8080, appProtocol: http}
- {name: any}
endpoints:
- addresses: [127.0.0.1, 10.0.0.9]
  conditions: {ready: false, serving: true}
  hostname: echo-0
  nodeName: n1
  zone: z1
  targetRef: {kind: Pod, name: echo-0, uid: p1}
  hints: {forZones: [{name: z1}, {name: z2}], forNodes: [{name: n1}]}
- addresses: [10.0.0.2]
`,
			want: &mesh.EndpointSlice{
				Meta: mesh.Meta{
					Key:       mesh.Key{Kind: "EndpointSlice", Namespace: "demo", Name: "echo-1"},
					ChangedAt: time.Date(2026, 2, 2, 2, 2, 2, 500_000_000, time.UTC), ChangedBy: mesh.ByTrigger,
				},
				Service: "echo", AddressType: "IPv4",
				Ports: []mesh.SlicePort{
					{Name: "http", Port: 8080, Protocol: "TCP", AppProtocol: "http"},
					{Name: "any", Protocol: "TCP"},
				},
				Endpoints: []mesh.SliceEndpoint{
					{
						Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.9")},
						Ready:     new(false), Serving: new(true), Hostname: "echo-0", NodeName: "n1", Zone: "z1",
						ForZones: []string{"z1", "z2"}, ForNodes: []string{"n1"},
						Pod: mesh.Key{Kind: "Pod", Namespace: "demo", Name: "echo-0"}, PodUID: "p1",
					},
					{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}},
				},
			},
		},
		{
			name: "slice with bad parts keeps the good ones",
			in: `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-1, annotations: {endpoints.kubernetes.io/last-change-trigger-time: yesterday}}
addressType: IPv4
ports:
- {name: a, port: 70000}
- {name: b, port: 80, protocol: QUIC}
- {name: c, port: 80}
- {name: c, port: 81}
endpoints:
- addresses: [10.0.0.256]
- addresses: ["fd00::1", 10.0.0.1]
- addresses: []
- {addresses: [10.0.0.2], hostname: Not_A_Label}
`,
			want: &mesh.EndpointSlice{
				Meta:        mesh.Meta{Key: mesh.Key{Kind: "EndpointSlice", Namespace: "default", Name: "echo-1"}},
				AddressType: "IPv4",
				Ports:       []mesh.SlicePort{{Name: "c", Port: 80, Protocol: "TCP"}},
				Endpoints: []mesh.SliceEndpoint{
					{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
					{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}},
				},
			},
			problems: fields("EndpointSlice default/echo-1",
				"metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]",
				"ports[0].port", "ports[1].protocol", "ports[3].name",
				"endpoints[0].addresses[0]", "endpoints[1].addresses[0]", "endpoints[2].addresses", "endpoints[3].hostname"),
		},
		{
			name: "FQDN slice",
			in: `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-1}
addressType: FQDN
endpoints: [{addresses: [a.example.com, "*bad"]}]
`,
			want: &mesh.EndpointSlice{
				Meta:        mesh.Meta{Key: mesh.Key{Kind: "EndpointSlice", Namespace: "default", Name: "echo-1"}},
				AddressType: "FQDN", Endpoints: []mesh.SliceEndpoint{{Hosts: []string{"a.example.com"}}},
			},
			problems: fields("EndpointSlice default/echo-1", "endpoints[0].addresses[1]"),
		},
		{
			name: "pod with a native sidecar",
			in: `
apiVersion: v1
kind: Pod
metadata: {name: echo-0, namespace: demo, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec:
  nodeName: n1
  hostname: echo-0
  subdomain: echo
  initContainers: [{name: proxy, restartPolicy: Always}, {name: setup}]
  containers: [{name: main}, {name: slow}]
status:
  podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}, {ip: bad}]
  conditions: [{type: Ready, status: "True"}]
  initContainerStatuses: [{name: proxy, ready: true}, {name: setup, ready: true}]
  containerStatuses: [{name: main, ready: true}, {name: slow, ready: false}]
`,
			want: &mesh.Pod{
				Meta:     mesh.Meta{Key: mesh.Key{Kind: "Pod", Namespace: "demo", Name: "echo-0"}},
				IPs:      []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
				NodeName: "n1", ServiceAccount: "default", Hostname: "echo-0", Subdomain: "echo",
				Terminating: true, Ready: true, ReadyContainers: []string{"main", "proxy"},
			},
			problems: fields("Pod demo/echo-0", "status.podIPs[2].ip"),
		},
		{
			name: "pod whose containers have ended",
			in: `
apiVersion: v1
kind: Pod
metadata: {name: job, namespace: demo}
status: {phase: Failed}
`,
			want: &mesh.Pod{Meta: mesh.Meta{Key: mesh.Key{Kind: "Pod", Namespace: "demo", Name: "job"}}, ServiceAccount: "default", Ended: true},
		},
		{
			name: "node",
			in: `
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: z1, topology.kubernetes.io/region: r1}}
`,
			want: &mesh.Node{Meta: mesh.Meta{Key: mesh.Key{Kind: "Node", Name: "n1"}}, Zone: "z1", Region: "r1"},
		},
		{
			name: "namespace",
			in: `
apiVersion: v1
kind: Namespace
metadata: {name: demo}
status: {phase: Terminating}
`,
			want: &mesh.Namespace{Meta: mesh.Meta{Key: mesh.Key{Kind: "Namespace", Name: "demo"}}, Terminating: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems, err := Convert(decode(t, tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, equal...); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			byField := cmpopts.SortSlices(func(a, b mesh.Problem) bool { return a.Field < b.Field })
			if diff := cmp.Diff(tt.problems, problems, cmpopts.EquateEmpty(), byField, cmpopts.IgnoreFields(mesh.Problem{}, "Reason")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			for _, p := range problems {
				if p.Reason == "" {
					t.Errorf("%v has no reason", p)
				}
			}
		})
	}
}

func fields(object string, names ...string) []mesh.Problem {
	var out []mesh.Problem
	for _, n := range names {
		out = append(out, mesh.Problem{Object: object, Field: n})
	}
	return out
}

func TestConvertRefuses(t *testing.T) {
	named := func(ns, name string) *corev1.Service {
		s := &corev1.Service{}
		s.Namespace, s.Name = ns, name
		return s
	}
	tests := map[string]runtime.Object{
		"another kind":  &corev1.ConfigMap{},
		"no name":       &discoveryv1.EndpointSlice{},
		"bad name":      named("default", "*"),
		"dotted name":   named("default", "a.b"),
		"bad namespace": named("A", "echo"),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if o, _, err := Convert(in); err == nil {
				t.Errorf("Convert gave %v, want an error", o)
			}
		})
	}
}
