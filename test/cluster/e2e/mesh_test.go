package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

// All the while two clients, behind our data plane and behind an Envoy, ask one service in
// every protocol, and never again for what fails. What happens to that service
// and beside it must not cost them one request, but where a test says so.
func TestMesh(t *testing.T) {
	m := mesh{place: newPlace(t, "mesh"), echo: inMesh("echo", 4, rolling("25%", "25%"))}
	m.deploy(m.echo)
	m.clients = m.bothClients("echo")
	all := []scenario{
		{"RollingUpdate25", rollingUpdate("25%")},
		{"RollingUpdate100", rollingUpdate("100%")},
		{"BadVersion", badVersion},
		{"Scale", scale},
		{"Recreate", recreate},
		{"StatefulSet", statefulSet},
		{"SwappedSelectors", swappedSelectors},
		{"PortChange", portChange},
		{"Selectorless", selectorless},
		{"ExternalName", externalName},
		{"DualStack", dualStack},
		{"Zones", zones},
		{"NamespaceDeleted", namespaceDeleted},
		{"ThousandEndpoints", thousandEndpoints},
		{"NodeDeath", nodeDeath},
	}
	if testing.Short() {
		all = all[1 : len(all)-1] // TestRollouts has a rolling update, TestOutage/Away a node's death
	}
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			of := *m.on(t)
			test.run(t, &of)
			m.echo = of.echo
			if t.Failed() {
				of.logs()
			}
		})
	}
}

// scenario is a subtest.
type scenario struct {
	name string
	run  func(*testing.T, *mesh)
}

// size chooses how much of something a test takes: with -short, as in `make test`, or whole, as in `make e2e`.
func size(short, whole int) int {
	if testing.Short() {
		return short
	}
	return whole
}

type mesh struct {
	place
	echo    backend
	clients []client
}

// on gives the mesh for a subtest, with the clients' counts at nothing.
func (m *mesh) on(t *testing.T) *mesh {
	t.Helper()
	of := &mesh{place: place{t, m.namespace}, echo: m.echo}
	for _, c := range m.clients {
		c.place = of.place
		c.settled()
		of.clients = append(of.clients, c)
	}
	return of
}

// lossless wants that no client has lost a request since the subtest began.
func (m *mesh) lossless() {
	m.t.Helper()
	for _, c := range m.clients {
		c.lossless()
	}
}

// steady waits until each client has had some more answers, and wants nothing lost.
func (m *mesh) steady() {
	m.t.Helper()
	now := m.listed("echo")
	since := time.Now()
	for _, c := range m.clients {
		c.answeredBy(since, now...)
	}
	m.lossless()
}

// steadyAgain waits as steady does, after pods have gone without a barrier: what was sent before Kubernetes
// listed those that are wanted may be lost, and nothing later. What comes next counts from nothing.
func (m *mesh) steadyAgain(lost string) {
	m.t.Helper()
	now := m.listed("echo")
	since := time.Now()
	for _, c := range m.clients {
		c.answeredBy(since, now...)
		for kind, k := range c.stats().Kinds {
			m.t.Logf("%s %s: %d of %d failed %s", c.pod.Name, kind, k.Failed, k.Sent, lost)
			for _, f := range k.Failures {
				if f.Sent.After(since) {
					m.t.Errorf("%s %s: sent %v after the pods were listed, and failed: %s", c.pod.Name, kind, f.Sent.Sub(since), f.Text)
				}
			}
		}
		c.reset()
	}
}

// ask asks for a service through the client's proxy, and gives the status and who answered.
func (c client) askFor(ctx context.Context, authority string) (status int, who string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.pod.Status.PodIP+":9901/", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	request.Host, request.Close = authority, true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	who = strings.TrimSpace(string(body))
	if why := response.Header.Get("Proxy-Status"); why != "" {
		who = why
	}
	return response.StatusCode, who, err
}

// answers waits until through each proxy one of the backends named answers a service, 20 times
// in a row and each of them at least once.
func (m *mesh) answers(authority string, names ...string) {
	m.t.Helper()
	for _, c := range m.clients {
		rig.Until(m.t, startTime, fmt.Sprintf("%s of %s answered by %v only", authority, c.pod.Name, names), func(ctx context.Context) (bool, any) {
			seen := make(map[string]bool)
			for range max(20, 8*len(names)) {
				status, who, err := c.askFor(ctx, authority)
				if err != nil || status != http.StatusOK || !slices.Contains(names, who) {
					return false, fmt.Sprint(status, " ", who, " ", err)
				}
				seen[who] = true
			}
			return len(seen) == len(names), seen
		})
	}
}

// refuses waits until each proxy answers a service with one of the statuses.
func (m *mesh) refuses(authority string, statuses ...int) {
	m.t.Helper()
	for _, c := range m.clients {
		rig.Until(m.t, time.Minute, fmt.Sprintf("%s of %s refused", authority, c.pod.Name), func(ctx context.Context) (bool, any) {
			status, who, err := c.askFor(ctx, authority)
			return slices.Contains(statuses, status), fmt.Sprint(status, " ", who, " ", err)
		})
	}
}

// always asks for a service through each proxy until the returned function is called, which gives
// what was not answered with 200.
func (m *mesh) always(authority string) (stop func() (failures []string)) {
	ctx, cancel := context.WithCancel(m.t.Context())
	failed := make(chan string, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, c := range m.clients {
				status, who, err := c.askFor(ctx, authority)
				if ctx.Err() == nil && (err != nil || status != http.StatusOK) {
					failed <- fmt.Sprintf("%s: %d %s %v", c.pod.Name, status, who, err)
				}
			}
		}
	}()
	return func() (failures []string) {
		cancel()
		<-done
		close(failed)
		for f := range failed {
			failures = append(failures, f)
		}
		return failures
	}
}

func (m *mesh) authority(service string, port int) string {
	return fmt.Sprintf("%s:%d", m.name(service), port)
}

func swappedSelectors(t *testing.T, m *mesh) {
	m.deploy(plain("one", 1))
	m.deploy(plain("two", 1))
	one, two := m.pods("one")[0].Name, m.pods("two")[0].Name
	service := func(name, app string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: %s}, ports: [{port: 8080, appProtocol: http}]}\n---\n", name, app)
	}
	m.applyText(service("blue", "one") + service("green", "two"))
	m.answers(m.authority("blue", 8080), one)
	m.answers(m.authority("green", 8080), two)
	blue, green := m.always(m.authority("blue", 8080)), m.always(m.authority("green", 8080))
	m.applyText(service("blue", "two") + service("green", "one"))
	m.answers(m.authority("blue", 8080), two)
	m.answers(m.authority("green", 8080), one)
	for _, stop := range []func() []string{blue, green} {
		if failures := stop(); len(failures) > 0 {
			t.Errorf("%d requests failed while selectors were swapped: %v", len(failures), failures)
		}
	}
	m.steady()
}

func portChange(_ *testing.T, m *mesh) {
	one := m.pods("one")[0].Name
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: moved}\nspec: {selector: {app: one}, ports: [{name: http, port: %d, targetPort: 8080, appProtocol: http}]}\n"
	m.applyText(fmt.Sprintf(service, 80))
	m.answers(m.name("moved"), one)
	m.applyText(fmt.Sprintf(service, 8081))
	m.answers(m.authority("moved", 8081), one)
	m.refuses(m.name("moved"), http.StatusNotFound)
	m.steady()
}

func selectorless(t *testing.T, m *mesh) {
	one, two := m.pods("one")[0], m.pods("two")[0]
	m.applyText("apiVersion: v1\nkind: Service\nmetadata: {name: bare}\nspec: {ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	slice := func(pod v1.Pod) string {
		return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: bare-1, labels: {kubernetes.io/service-name: bare}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, pod.Status.PodIP)
	}
	m.applyText(slice(one))
	m.answers(m.authority("bare", 8080), one.Name)
	m.applyText(slice(two))
	m.answers(m.authority("bare", 8080), two.Name)

	// The older API, which a controller mirrors.
	m.applyText("apiVersion: v1\nkind: Service\nmetadata: {name: old}\nspec: {ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	_, err := the.Admin.CoreV1().Endpoints(m.namespace).Create(t.Context(), &v1.Endpoints{ //nolint:staticcheck // that it is old is the point
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Subsets: []v1.EndpointSubset{{ //nolint:staticcheck // as above
			Addresses: []v1.EndpointAddress{{IP: one.Status.PodIP}},
			Ports:     []v1.EndpointPort{{Name: "http", Port: 8080}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.answers(m.authority("old", 8080), one.Name)
	m.steady()
}

func externalName(_ *testing.T, m *mesh) {
	one, two := m.pods("one")[0], m.pods("two")[0]
	the.DNS.Set("ext.example.test", addr(one.Status.PodIP))
	m.applyText("apiVersion: v1\nkind: Service\nmetadata: {name: ext}\nspec: {type: ExternalName, externalName: ext.example.test, ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	m.answers(m.authority("ext", 8080), one.Name)
	the.DNS.Set("ext.example.test", addr(two.Status.PodIP))
	m.answers(m.authority("ext", 8080), two.Name)
	m.steady()
}

func dualStack(_ *testing.T, m *mesh) {
	one := m.pods("one")[0].Name
	for name, spec := range map[string]string{"both": "ipFamilyPolicy: RequireDualStack", "six": "ipFamilies: [IPv6], ipFamilyPolicy: SingleStack"} {
		m.applyText(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {%s, selector: {app: one}, ports: [{name: http, port: 8080, appProtocol: http}]}\n", name, spec))
		m.answers(m.authority(name, 8080), one)
	}
	m.steady()
}

// trafficDistribution keeps requests in the client's zone as long as that has an endpoint.
func zones(t *testing.T, m *mesh) {
	b := plain("zonal", 3)
	b.Spread = v1.LabelTopologyZone
	m.deploy(b)
	m.applyText("apiVersion: v1\nkind: Service\nmetadata: {name: near}\nspec: {selector: {app: zonal}, trafficDistribution: PreferSameZone, ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	var here, all []string
	for _, pod := range m.pods("zonal") {
		all = append(all, pod.Name)
		if pod.Spec.NodeName == "node-1" || pod.Spec.NodeName == "node-4" { // both in zone-a, as the clients
			here = append(here, pod.Name)
		}
	}
	if len(here) != 1 {
		t.Fatalf("%d of %d pods are in zone-a, want one", len(here), len(all))
	}
	m.answers(m.authority("near", 8080), here...)
	m.answers(m.authority("zonal", 8080), all...)
	m.steady()
}

func namespaceDeleted(t *testing.T, m *mesh) {
	other := place{t, the.Namespace(t, "doomed", nil)}
	other.deploy(plain("victim", 1))
	m.answers(other.name("victim")+":8080", other.pods("victim")[0].Name)
	if err := the.Admin.CoreV1().Namespaces().Delete(t.Context(), other.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.refuses(other.name("victim")+":8080", http.StatusNotFound)
	m.steady()
}
