package inject

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

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

// TestListenIsWhatTheProgramTakes: the annotation takes nothing that the data plane would then not start with, and
// refuses nothing that it takes, but for odd spaces, empty brackets, zones, and IPv4 addresses in IPv6.
func TestListenIsWhatTheProgramTakes(t *testing.T) {
	taken := func(value string) bool {
		_, _, err := config.LoadDataplane([]string{"--node-id", "a", "--admin-address", ":0", "--outbound-address", ":0", "--health-address", "", "--print-config"},
			func(name string) (string, bool) { return value, name == "FRESHMESH_LISTEN" })
		return err == nil
	}
	for _, value := range []string{
		":80=web", "127.0.0.1:5432=db.shop.svc.cluster.local:5432", "localhost:0=a,http", "[::1]:65535=a,tcp,proxy", "[fd00::1]:1=[fd00::2]:80,proxy",
		" :80=a\t:81=b\n", "255.255.255.255:9=a=b",
	} {
		if err := judgeListen(value); err != nil || !taken(value) {
			t.Errorf("%q: %v, by the program %v", value, err, taken(value))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.OneOf(
			rapid.StringMatching(`(\[[0-9a-f:.%]{0,9}\]|[0-9.]{0,15}|localhost|a)?`),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 4, 4), func(b []byte) string { a, _ := netip.AddrFromSlice(b); return a.String() }),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) string { a, _ := netip.AddrFromSlice(b); return "[" + a.String() + "]" }),
		).Draw(t, "address")
		port := rapid.OneOf(rapid.StringMatching(`[1-9][0-9]{0,5}|0|x?`), rapid.Map(rapid.IntRange(65000, 66000), strconv.Itoa)).Draw(t, "port")
		cluster := rapid.OneOf(rapid.StringMatching(`[a-z.:]{0,8}`), rapid.StringN(0, 5, -1)).Draw(t, "cluster")
		value := address + ":" + port + "=" + cluster + rapid.SampledFrom([]string{"", ",", ",tcp", ",http", ",proxy", ",tcp,proxy", ",http,proxy", ",tpc"}).Draw(t, "protocol")
		if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
			value = strings.ToValidUTF8(value[:rapid.IntRange(0, len(value)).Draw(t, "at")], "") // JSON has no other
		}
		ours, theirs := judgeListen(value) == nil, taken(value)
		if ip, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil && (ip.Zone() != "" || ip.Is4In6() || ip.Is4() && address[0] == '[') {
			theirs = theirs && ours // the annotation may refuse it
		}
		odd := func(r rune) bool { return unicode.IsSpace(r) && !strings.ContainsRune(" \t\n\f\r", r) }
		if strings.HasPrefix(value, "[]") || strings.ContainsFunc(value, odd) {
			theirs = theirs && ours
		}
		if value == "" || strings.TrimSpace(value) == "" {
			theirs = false // no variable, no listener
		}
		if ours != theirs {
			t.Fatalf("%q: the annotation %v, the program %v", value, ours, theirs)
		}
	})
}
