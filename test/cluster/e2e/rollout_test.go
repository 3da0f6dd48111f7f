package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Rolling updates, with clients that never retry and the barrier as preStop:
// not one request fails, and the new pods are those that answer.
func TestRollingUpdate(t *testing.T) {
	for name, strategy := range map[string]string{"25%": rolling("25%", "25%"), "100%": rolling("100%", "100%")} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, "rolling")
			b := inMesh("echo", 4, strategy)
			p.deploy(b)
			clients := p.bothClients("echo")
			old := names(p.pods("echo"))
			b.Version = "2"
			p.deploy(b)
			p.replaced(clients, old, names(p.pods("echo")))
			t.Log("waited for the barrier:", p.waits())
		})
	}
}

// bothClients starts a client behind our data plane and one behind Envoy, and waits until all is answered.
func (p place) bothClients(service string) []client {
	p.t.Helper()
	clients := []client{p.client("ours", "dataplane", service, nil), p.client("envoys", "envoy", service, nil)}
	for _, c := range clients {
		c.settled()
	}
	return clients
}

// replaced wants the new pods to have answered all kinds of clients, the old ones to be silent, and nothing lost.
func (p place) replaced(clients []client, old, now []string) {
	p.t.Helper()
	since := time.Now()
	for _, c := range clients {
		c.answeredBy(since, now...)
	}
	for _, c := range clients {
		for kind, k := range c.lossless().Kinds {
			for name, b := range k.Answers {
				if slices.Contains(old, name) && b.Last.After(since) {
					p.t.Errorf("%s %s: %s answered %v after its end", c.pod.Name, kind, name, b.Last.Sub(since))
				} else if !slices.Contains(old, name) && !slices.Contains(now, name) && name != "" {
					p.t.Logf("%s %s: %s, of between, answered %d", c.pod.Name, kind, name, b.Count)
				}
			}
		}
	}
}

// waits gives how long the pods of a test waited in preStop, and shows those that did not end with 200.
func (p place) waits() []time.Duration {
	p.t.Helper()
	var all []time.Duration
	began := make(map[string]time.Time)
	for _, node := range the.Nodes {
		for _, e := range node.Trace.All() {
			if e.Pod.Namespace != p.namespace {
				continue
			}
			switch e.What {
			case "preStop":
				began[e.Pod.Name] = e.At
			case "preStop done", "preStop failed":
				all = append(all, e.At.Sub(began[e.Pod.Name]))
				if !strings.HasPrefix(e.Detail, "200 ") {
					p.t.Errorf("%s: %s: %s", e.Pod.Name, e.What, e.Detail)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func names(pods []v1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}
