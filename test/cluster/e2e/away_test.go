package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

const (
	// stopTime is what the API server may take to end, answering until then.
	stopTime = 5 * time.Second
	// leaveTime is within what a proxy leaves an endpoint that does not even refuse: a few connects that
	// are not answered, 5 s each, and connections whose peer is silent, 30 s (docs/capture.md).
	leaveTime = 90 * time.Second
	// kinds is how many kinds of objects an xds-server follows.
	kinds = 5
)

// audit asks one xds-server.
func audit(ctx context.Context, address string) (a ack.Audit, err error) {
	return a, fetch(ctx, http.MethodGet, "http://"+address+"/audit", &a)
}

// knownUntil wants every server, which has lost its source, to say since when, and of each kind
// up to which version and until when it was proven: not later than the given time. Both are facts
// of the past: they do not move while the source stays away.
func knownUntil(t *testing.T, servers []string, last time.Time) {
	t.Helper()
	for _, address := range servers {
		var before ack.Audit
		rig.Until(t, knowsTime, address+" says the same again, a second later", func(ctx context.Context) (bool, any) {
			now, err := audit(ctx, address)
			if err != nil || before.Time.IsZero() {
				before = now
				return false, err
			}
			if now.Time.Sub(before.Time) < time.Second {
				return false, nil
			}
			// The source was lost at the latest when the test first saw that.
			if grown := now.Server.SourceLagSeconds - before.Server.SourceLagSeconds - now.Time.Sub(before.Time).Seconds(); grown < -0.5 || grown > 0.5 {
				t.Errorf("%s: the lag went from %v to %v in %v", address, before.Server.SourceLagSeconds, now.Server.SourceLagSeconds, now.Time.Sub(before.Time))
			}
			if len(now.Server.Sources) != kinds {
				t.Errorf("%s: %d kinds: %+v", address, len(now.Server.Sources), now.Server.Sources)
			}
			for _, s := range now.Server.Sources {
				if !s.Synced || s.ResourceVersion == "" || s.CheckedAt.IsZero() || s.CheckedAt.After(last) {
					t.Errorf("%s: %+v; the source was lost at %v", address, s, last)
				}
			}
			return true, nil
		})
	}
}

// away: the API server is gone for a minute, and meanwhile the pods change: what was written just
// before may not have been heard of, and a node dies of which nobody hears. What is dead is left by
// the proxies themselves; when the API server is back, everything is caught up with.
func away(t *testing.T, m *mesh) {
	all, minimum := servers(t), time.Duration(size(15, 60))*time.Second
	b := plain("mortal", 2)
	b.Nodes, b.Spread = "[node-2, node-3]", "kubernetes.io/hostname"
	m.deploy(b)
	var staying string
	for _, pod := range m.pods("mortal") {
		if pod.Spec.NodeName == "node-2" {
			staying = pod.Name
		}
	}
	m.answers(m.authority("mortal", 8080), names(m.pods("mortal"))...)
	here := all[:0:0]
	for _, address := range all {
		if !m.onNode("node-3", address) {
			here = append(here, address)
		}
	}

	m.echo.Replicas++
	m.apply("backend.yaml", m.echo)
	m.applyText(named("late"))
	the.KillAPI()
	gone := time.Now()
	if err := the.Nodes[2].Die(); err != nil {
		t.Fatal(err)
	}
	m.leave(m.authority("mortal", 8080), staying)
	say(t, here, false, "")
	knownUntil(t, here, gone)
	for _, address := range here {
		rig.Until(t, knowsTime, fmt.Sprintf("%s without its source for %v", address, minimum), func(ctx context.Context) (bool, any) {
			r, err := readiness(ctx, address)
			return err == nil && r.Ready && time.Since(gone) > minimum && r.LagSeconds > minimum.Seconds()/2 && r.LagSeconds <= time.Since(gone).Seconds(), fmt.Sprintf("%+v %v", r, err)
		})
	}
	m.leave(m.authority("mortal", 8080), staying)

	if err := the.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := the.Nodes[2].Revive(); err != nil {
		t.Fatal(err)
	}
	m.applyText(named("later"))
	say(t, here, true, "")
	for _, address := range here {
		knows(t, address, m.name("late")+":8080")
		knows(t, address, m.name("later")+":8080")
	}
	deployed(t, m.namespace, "mortal", rolloutTime)
	deployed(t, m.namespace, "echo", rolloutTime)
	deployed(t, meshNamespace, "xds-server", rolloutTime)
	fresh(t, knowsTime)
}

// leave wants each client's proxy to go on without a backend that is gone without a word, though the control
// plane does not know that either. Our data plane leaves it: one answer after the other comes, at once, from
// the backend that stays. An Envoy tries it again and again, as it has no outlier detection unless a service
// asks for it, and waits for its connect timeout each time: then an answer, in time, is enough.
func (m *mesh) leave(authority, staying string) {
	m.t.Helper()
	var group sync.WaitGroup
	for _, c := range m.clients {
		group.Go(func() {
			began, slow := time.Now(), 0
			limit, enough := time.Second, 20
			if c.pod.Name == "envoys" {
				limit, enough = 10*time.Second, 5
			}
			for in := 0; in < enough && time.Since(began) < leaveTime; {
				asked := time.Now()
				status, who, err := c.askFor(m.t.Context(), authority)
				in++
				if took := time.Since(asked); err != nil || status != http.StatusOK || who != staying || took > limit {
					m.t.Logf("%s: %v after the death: %d %s %v, after %v", c.pod.Name, time.Since(began).Round(time.Millisecond), status, who, err, took.Round(time.Millisecond))
					in, slow = 0, slow+1
				}
			}
			took := time.Since(began).Round(time.Millisecond)
			m.t.Logf("%s goes on without the dead node after %v and %d slow or failed requests", c.pod.Name, took, slow)
			if took > leaveTime {
				m.t.Errorf("%s does not go on without the dead node after %v", c.pod.Name, took)
			}
		})
	}
	group.Wait()
}

// onNode tells whether an xds-server, by its admin address, runs on a node.
func (m *mesh) onNode(node, address string) bool {
	m.t.Helper()
	list, err := the.Admin.CoreV1().Pods(meshNamespace).List(m.t.Context(), metav1.ListOptions{LabelSelector: meshPods})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.Status.PodIP+":18080" == address {
			return pod.Spec.NodeName == node
		}
	}
	return false
}

// named is a service without endpoints.
func named(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 8080, appProtocol: http}]}\n", name)
}

// knows waits until an xds-server serves a cluster.
func knows(t *testing.T, address, cluster string) {
	t.Helper()
	rig.Until(t, knowsTime, cluster+" known by "+address, func(ctx context.Context) (bool, any) {
		var text string
		err := fetch(ctx, http.MethodGet, "http://"+address+"/resources?type=cds&name="+cluster, &text)
		return err == nil && strings.Contains(text, `"connect`), text
	})
}

// An expired token is one that the API server does not take any more, though nothing was withdrawn.
func TestExpiredToken(t *testing.T) {
	p := newPlace(t, "expired")
	t.Parallel()
	// Kubernetes allows a minute for clocks that differ (go-jose, DefaultLeeway), and remembers a good token for 10 s.
	const leeway = time.Minute
	now := time.Now()
	token, err := the.Token(t.Context(), meshNamespace, "xds-server", now.Add(-time.Hour), now.Add(20*time.Second-leeway))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOutsider(t, tokenKubeconfig(t, file))
	at := []string{o.admin}
	say(t, at, true, "")
	p.applyText(named("before"))
	knows(t, o.admin, p.name("before")+":8080")
	say(t, at, false, "credentials")
	knows(t, o.admin, p.name("before")+":8080")
	if token, err = the.Token(t.Context(), meshNamespace, "xds-server", now.Add(-time.Hour), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	p.applyText(named("after"))
	// client-go reads the file anew once a minute.
	knows(t, o.admin, p.name("after")+":8080")
	say(t, at, true, "")
}

// slowDiscovery is a way to an API server whose discovery takes 30 s a call; it counts them.
type slowDiscovery struct {
	to    http.RoundTripper
	asked chan string
}

func (s slowDiscovery) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "openapi" || parts[0] == "api" && len(parts) < 3 || parts[0] == "apis" && len(parts) < 4 {
		select {
		case s.asked <- r.URL.Path:
		default:
		}
		timer := time.NewTimer(30 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return s.to.RoundTrip(r)
}

// A cluster full of custom resources has a slow discovery: an xds-server does not ask for it.
func TestCrowdedAPI(t *testing.T) {
	p := newPlace(t, "crowded")
	t.Parallel()
	customResources := size(20, 100)
	var text strings.Builder
	for i := range customResources {
		fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kinds%d.group%d.example.test}
spec:
  group: group%d.example.test
  scope: Namespaced
  names: {plural: kinds%d, singular: kind%d, kind: Kind%d}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, i, i, i, i, i, i)
	}
	p.applyText(text.String())
	transport, err := rest.TransportFor(&rest.Config{
		Host: the.AdminConfig.Host, BearerToken: account(t, "crowded"), TLSClientConfig: rest.TLSClientConfig{CAData: the.CA()},
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := slowDiscovery{transport, make(chan string, 100)}
	proxy := apiproxy.Start(t, the.AdminConfig.Host, slow)
	began := time.Now()
	o := startOutsider(t, proxy.Kubeconfig())
	say(t, []string{o.admin}, true, "")
	t.Logf("ready %v after its start, with %d custom resources", time.Since(began).Round(time.Millisecond), customResources)
	p.applyText(named("among-many"))
	knows(t, o.admin, p.name("among-many")+":8080")
	select {
	case path := <-slow.asked:
		t.Errorf("it asks for %s, which is slow in such a cluster", path)
	default:
	}
}
