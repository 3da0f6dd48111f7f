package clustercheck

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// look runs the command against a server.
func look(t *testing.T, url string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), append([]string{"--kubeconfig", kubetest.Kubeconfig(t, url)}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestShipped: of the install as it is shipped nothing is missing, and there is no warning.
func TestShipped(t *testing.T) {
	_, url := newFake(t)
	code, stdout, stderr := look(t, url)
	if code != exitOK || stderr != "" || !strings.HasSuffix(stdout, "\n0 missing, 0 warnings\n") {
		t.Errorf("code %d, stderr %q\n%s", code, stderr, stdout)
	}
	for _, want := range []string{
		"ok       server   version v1.37.0 of 127.0.0.1:", "its clock is at least 0s from ours", "this user has 11 rights that are needed",
		"system:serviceaccount:freshmesh:xds-server has 11 rights", "Deployment xds-server: 2 of 2 replicas are ready", "pod xds-server-a, port 18080: ready",
		"no namespace is labelled freshmesh.dev/inject=enabled",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
}

// TestFindings: each thing that can be wrong is found, with what helps.
func TestFindings(t *testing.T) {
	const account = "system:serviceaccount:freshmesh:xds-server"
	apps := func(name string, with bool) map[string]any {
		pod := map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"containers": []any{map[string]any{"name": "a"}}}, "status": map[string]any{"phase": "Running"}}
		if with {
			pod["spec"].(map[string]any)["initContainers"] = []any{map[string]any{"name": "freshmesh-proxy"}}
		}
		return pod
	}
	for _, test := range []struct {
		name   string
		breaks func(*fake)
		code   int
		want   string // a line's beginning, without its padding
		remedy string
	}{
		{"old version", func(f *fake) { f.minor = "28" }, 1, "missing server version v1.28.0", "Upgrade to Kubernetes 1.29"},
		{"version of a vendor", func(f *fake) { f.minor = "33+" }, 0, "ok server version v1.33+.0", ""},
		{"clock", func(f *fake) { f.behind = 30 * time.Second }, 0, "warning server its clock is at least 2", "NTP"},
		{"clock far away", func(f *fake) { f.behind = -time.Hour }, 1, "missing server its clock is at least ", "NTP"},
		{
			"no policies", func(f *fake) { delete(f.objects, prefixOf("admissionregistration.k8s.io/v1")) }, 0,
			"warning api admissionregistration.k8s.io/v1 has no mutatingadmissionpolicies, mutatingadmissionpolicybindings", "xds-server inject",
		},
		{"no slices", func(f *fake) { delete(f.objects, prefixOf("discovery.k8s.io/v1")) }, 1, "missing api discovery.k8s.io/v1 has no endpointslices", "Upgrade"},
		{"right of ours", func(f *fake) { f.denied[" watch services"] = true }, 1, "missing rights this user cannot watch services", "Bind the ClusterRole"},
		{
			"right of the service account", func(f *fake) { f.denied[account+" list endpointslices"] = true }, 1,
			"missing rights " + account + " cannot list endpointslices.discovery.k8s.io", "kubectl apply -k",
		},
		{"right that is not required", func(f *fake) { f.denied["watch nodes"] = true }, 0, "warning rights this user cannot watch nodes", "Bind"},
		{
			"reviews forbidden", func(f *fake) { f.status["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = 403 }, 0,
			"warning rights not known: forbidden: cannot create subjectaccessreviews: not for you", "the right to create subjectaccessreviews",
		},
		{"no namespace", func(f *fake) { f.remove("v1", "namespaces", "", "freshmesh") }, 1, "missing install Namespace freshmesh does not exist", "kubectl apply -k"},
		{"no service account", func(f *fake) { f.remove("v1", "serviceaccounts", "freshmesh", "xds-server") }, 1, "missing install ServiceAccount xds-server does not exist", "kubectl apply -k"},
		{
			"objects forbidden", func(f *fake) {
				f.status["/apis/networking.k8s.io/v1/namespaces/freshmesh/networkpolicies/xds-server"] = 403
			}, 0,
			"warning install not known: forbidden: cannot get networkpolicies", "the right to get networkpolicies",
		},
		{"too many rights", func(f *fake) {
			f.put("rbac.authorization.k8s.io/v1", "clusterroles", "", "freshmesh-xds-server", func(o map[string]any) {
				o["rules"] = append(o["rules"].([]any), map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}})
			})
		}, 0, "warning install ClusterRole freshmesh-xds-server gives more than is used: get secrets", "kubectl apply -k"},
		{"headless service with an address", func(f *fake) {
			f.put("v1", "services", "freshmesh", "xds-server-headless", func(o map[string]any) { o["spec"].(map[string]any)["clusterIP"] = "10.0.0.1" })
		}, 1, "missing install Service xds-server-headless has a cluster IP", "kubectl apply -k"},
		{"no replica ready", func(f *fake) {
			f.put("apps/v1", "deployments", "freshmesh", "xds-server", func(o map[string]any) { o["status"] = map[string]any{} })
		}, 1, "missing install Deployment xds-server: none of 2 replicas is ready", "describe pods"},
		{"one replica ready", func(f *fake) {
			f.put("apps/v1", "deployments", "freshmesh", "xds-server", func(o map[string]any) { o["status"] = map[string]any{"readyReplicas": 1} })
		}, 0, "warning install Deployment xds-server: 1 of 2 replicas are ready", "describe pods"},
		{
			"no budget", func(f *fake) { f.remove("policy/v1", "poddisruptionbudgets", "freshmesh", "xds-server") }, 0,
			"warning install PodDisruptionBudget xds-server (without it,", "kubectl apply -k",
		},
		{"no policy", func(f *fake) {
			f.remove("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", "", "freshmesh-injection")
		}, 0, "warning inject MutatingAdmissionPolicy freshmesh-injection does not exist", "kubectl apply -k"},
		{"no ConfigMap", func(f *fake) { f.remove("v1", "configmaps", "freshmesh", "injection") }, 1, "missing inject ConfigMap injection does not exist", "kubectl apply -k"},
		{"wrong ConfigMap", func(f *fake) {
			f.put("v1", "configmaps", "freshmesh", "injection", func(o map[string]any) { delete(o["data"].(map[string]any), "image") })
		}, 1, "missing inject ConfigMap injection: data.image: missing", "kubectl apply -k"},
		{"address of one replica", func(f *fake) {
			f.put("v1", "configmaps", "freshmesh", "injection", func(o map[string]any) { o["data"].(map[string]any)["xds-address"] = "xds-server.freshmesh.svc:18000" })
		}, 0, "warning inject ConfigMap injection: xds-address xds-server.freshmesh.svc:18000 is not of", "headless"},
		{"pods without the proxy", func(f *fake) {
			f.objects["/api/v1/namespaces"] = listOf("NamespaceList", map[string]any{"metadata": map[string]any{"name": "shop"}})
			f.objects["/api/v1/namespaces/shop/pods"] = listOf("PodList", apps("old", false), apps("new", true))
		}, 0, "warning inject namespace shop: 1 pods have no proxy: old", "kubectl -n shop rollout restart"},
		{
			"port", func(f *fake) { f.status["/api/v1/namespaces/freshmesh/pods/xds-server-a:18080/proxy/readyz"] = 503 }, 0,
			"warning ports pod xds-server-a, port 18080: ", "port-forward",
		},
		{
			"port not for us", func(f *fake) { f.status["/api/v1/namespaces/freshmesh/pods/xds-server-a:18080/proxy/readyz"] = 403 }, 0,
			"warning ports not known: forbidden: cannot get pods/proxy", "the right to get pods/proxy",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, url := newFake(t)
			test.breaks(f)
			code, stdout, stderr := look(t, url)
			if code != test.code || stderr != "" {
				t.Errorf("code %d, want %d; stderr %q", code, test.code, stderr)
			}
			var found bool
			lines := strings.Split(stdout, "\n")
			for i, line := range lines {
				if strings.HasPrefix(strings.Join(strings.Fields(line), " "), test.want) {
					found = true
					if test.remedy != "" && !strings.Contains(lines[i+1], test.remedy) {
						t.Errorf("after %q comes %q, want %q", line, lines[i+1], test.remedy)
					}
				}
			}
			if !found {
				t.Errorf("%q is missing in\n%s", test.want, stdout)
			}
		})
	}
}

// TestJSON: the same for machines.
func TestJSON(t *testing.T) {
	f, url := newFake(t)
	f.denied["list services"] = true
	code, stdout, _ := look(t, url, "-o", "json")
	var report Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	if code != exitMissing || report.Version != "v1.37.0" || report.Missing != 2 || report.Warnings != 0 {
		t.Errorf("code %d, %+v", code, report)
	}
	for _, finding := range report.Findings {
		if (finding.State != OK) != (finding.Remedy != "") {
			t.Errorf("%+v: whatever is not ok has a remedy", finding)
		}
	}
}

// TestCannotAsk: what cannot be asked is never "ok".
func TestCannotAsk(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer other.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for url, want := range map[string]string{other.URL: "no API server's answer", gone.URL: "connection refused to 127.0.0.1:"} {
		if code, stdout, stderr := look(t, url); code != exitUnknown || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	}
	_, url := newFake(t)
	for _, args := range [][]string{{"-o", "yaml"}, {"more"}, {"--timeout", "0s"}, {"--context", "none"}} {
		if code, _, stderr := look(t, url, args...); code != exitUnknown || stderr == "" {
			t.Errorf("%q: code %d, stderr %q", args, code, stderr)
		}
	}
}
