package inject

import (
	"bytes"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/freshmesh/freshmesh/pkg/config"
	redirecting "github.com/freshmesh/freshmesh/pkg/dataplane/redirect"
)

// TestTheProgramTakesIt: what the containers are started with is what the data plane takes.
func TestTheProgramTakesIt(t *testing.T) {
	spec := into[corev1.Pod](t, inject(t, `apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    freshmesh.dev/listen: 127.0.0.1:5432=db.default.svc.cluster.local:5432 127.0.0.1:80=web.default.svc.cluster.local:80,http
    freshmesh.dev/redirect: enabled
    freshmesh.dev/skip-outbound-ports: 5432,6379
    freshmesh.dev/skip-inbound-ports: "9090"
    freshmesh.dev/skip-uids: 0,1001
spec: {terminationGracePeriodSeconds: 61, containers: [{name: a}]}
`).Text).Spec
	env := map[string]string{}
	for _, e := range spec.InitContainers[0].Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = map[string]string{"metadata.name": "a", "metadata.namespace": "shop", "spec.nodeName": "n"}[e.ValueFrom.FieldRef.FieldPath]
		}
		if e.Name == "FRESHMESH_STATE_DIR" {
			env[e.Name] = t.TempDir()
		}
	}
	// Every variable is a setting: as a flag it would be an error if it were none.
	c, result, err := config.LoadDataplane(nil, func(name string) (string, bool) {
		value, ok := env[name]
		delete(env, name)
		return value, ok
	})
	if err != nil || len(result.Warnings) > 0 || len(env) > 0 {
		t.Errorf("%v, warnings %q, variables that are none of the data plane's: %v", err, result.Warnings, env)
	}
	if c.NodeID != "a.shop" || c.NodeName != "n" || c.DrainTime != 31*time.Second || c.OutboundAddress != ":15001" || c.InboundAddress != ":15006" || len(c.Listen) != 2 || c.HealthAddress != ":15021" {
		t.Errorf("%+v", c)
	}
	step := spec.InitContainers[1]
	if !slices.Contains(step.Args, "--skip-uids=0,1001") || step.Args[0] != "redirect" {
		t.Errorf("%q", step.Args)
	}
	var out, errs bytes.Buffer
	if code := redirecting.Main(append(step.Args[1:], "--help"), &out, &errs); code != 0 {
		t.Errorf("%q: %s", step.Args, &errs)
	}
}
