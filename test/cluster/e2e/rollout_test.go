package e2e

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

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

func names(pods []v1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}
