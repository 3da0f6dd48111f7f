package clustercheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/freshmesh/freshmesh/pkg/kube"
)

const (
	// sidecarMinor is the first version 1.x whose native sidecars are on by default (KEP-753).
	sidecarMinor = 29
	// dateStep is what the Date header cannot tell (RFC 9110, 5.6.7: whole seconds).
	dateStep = time.Second
	// skewWarning and skewMissing are clock differences: the first disturbs ages in
	// the audit, the second makes tokens and certificates that are not valid yet.
	skewWarning = 2 * time.Second
	skewMissing = time.Minute
)

// checkServer gives an error when the server does not answer.
func (c *checker) checkServer(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.base, "/")+"/version", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.server, err)
	}
	before := time.Now()
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%s", kube.Explain(err, "get /version", c.server))
	}
	defer response.Body.Close()
	after := time.Now()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var v version.Info
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(body, &v) != nil || v.GitVersion == "" {
		return fmt.Errorf("%s answered %d to get /version, which is no API server's answer", c.server, response.StatusCode)
	}
	c.report.Version = v.GitVersion
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	switch {
	case err != nil || v.Major != "1":
		c.report.add("server", Warning, "", "version %s of %s: not one that is known here", v.GitVersion, c.server)
	case minor < sidecarMinor:
		c.report.add("server", Missing, fmt.Sprintf("Upgrade to Kubernetes 1.%d: the proxy is a native sidecar (KEP-753).", sidecarMinor), "version %s of %s", v.GitVersion, c.server)
	default:
		c.report.add("server", OK, "", "version %s of %s", v.GitVersion, c.server)
	}
	c.checkClock(response.Header.Get("Date"), before, after)
	return nil
}

// checkClock compares the server's date, from between two moments of ours. Only
// what no rounding and no time on the way can explain counts.
func (c *checker) checkClock(date string, before, after time.Time) {
	const remedy = "Synchronize the clocks of this machine and of the control plane's nodes (NTP)."
	at, err := http.ParseTime(date)
	if err != nil {
		c.report.add("server", Warning, "Compare the clocks by hand.", "clock not known: %s sent no date", c.server)
		return
	}
	skew := max(before.Sub(at.Add(dateStep)), at.Sub(after), 0).Round(time.Millisecond)
	state := OK
	if skew >= skewMissing {
		state = Missing
	} else if skew >= skewWarning {
		state = Warning
	}
	c.report.add("server", state, remedy, "its clock is at least %v from ours", skew)
}

// checkAPI looks for the groups and resources that are needed.
func (c *checker) checkAPI(ctx context.Context) {
	const policies = "admissionregistration.k8s.io/v1"
	for _, need := range []struct {
		version   string
		resources []string
		missing   State
		remedy    string
	}{
		{"v1", []string{"services", "pods", "nodes", "namespaces"}, Missing, "This is no Kubernetes API server."},
		{"discovery.k8s.io/v1", []string{"endpointslices"}, Missing, "Upgrade Kubernetes, or turn the group on (--runtime-config of kube-apiserver)."},
		{
			policies,
			[]string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},
			Warning,
			"Pods are not injected by themselves: upgrade to Kubernetes 1.36, or use `xds-server inject`.",
		},
		{policies, []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, Warning, "Wrong annotations are not refused: upgrade to Kubernetes 1.30."},
		{"policy/v1", []string{"poddisruptionbudgets"}, Warning, "Nothing keeps one replica up while nodes are drained: upgrade Kubernetes."},
		{"networking.k8s.io/v1", []string{"networkpolicies"}, Warning, "The admin side is open to every pod: upgrade Kubernetes."},
	} {
		list, err := c.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, need.version)
		var lacking []string
		for _, name := range need.resources {
			if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
				lacking = append(lacking, name)
			}
		}
		if len(lacking) > 0 {
			c.report.add("api", need.missing, need.remedy, "%s has no %s", need.version, strings.Join(lacking, ", "))
		} else {
			c.report.add("api", OK, "", "%s has %s", need.version, strings.Join(need.resources, ", "))
		}
	}
}
