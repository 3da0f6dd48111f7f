package mesh

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
)

// part gives one part of the sources in the audit.
func part(t *testing.T, control *meshtest.Control, kind string) ack.SourceState {
	t.Helper()
	all := control.Audit(t).Server.Sources
	i := slices.IndexFunc(all, func(s ack.SourceState) bool { return s.Kind == kind })
	if i < 0 {
		t.Fatalf("no %s among %+v", kind, all)
	}
	return all[i]
}

// The watch of the endpoint slices delivers nothing, and ends in good order. No
// connect fails and nobody reports: the source's own check must find it.
func TestDeafWatchIsFoundByTheSourceCheck(t *testing.T) {
	const interval = 6 * time.Second
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", a.Address))
	control := meshtest.StartControl(t, kubernetes(t, api, interval), patient, rareReports)
	proxy := meshtest.StartProxy(t, control.XDS, func(c *dataplane.Config) {
		patientProxy(c)
		c.DisableRefresh = true
	})
	client := &meshtest.Client{Address: proxy.Outbound}
	t.Cleanup(client.Close)
	testwait.Within(t, 5*time.Second, "answered", func() bool { return answers(client) == "a" })
	api.Set(func(f *kubetest.Faults) { f.Mute["endpointslices"] = true })
	api.Put(kubetest.Slice("echo-1", "echo", b.Address))
	if !answeredWithin(client, "b", interval+time.Second) {
		t.Fatal("the change was not found")
	}
	testwait.Within(t, 5*time.Second, "in the audit", func() bool {
		s := part(t, control, "endpointslices")
		return s.Relists > 0 && s.LastRelist.Reason == "deaf" && s.LagSeconds == 0 && !s.CheckedAt.IsZero()
	})
	if a := control.Audit(t).Server; a.SourceLagSeconds != 0 || a.SourceReason != "" {
		t.Errorf("healed, and the audit says %v %q", a.SourceLagSeconds, a.SourceReason)
	}
}

// A cluster that is restored from a backup: every node gets the state of then.
func TestRewoundClusterReachesTheNodes(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", a.Address))
	then := api.Save()
	control := meshtest.StartControl(t, kubernetes(t, api, 3*time.Second), patient, rareReports)
	proxy := meshtest.StartProxy(t, control.XDS, func(c *dataplane.Config) {
		patientProxy(c)
		c.DisableRefresh = true
	})
	client := &meshtest.Client{Address: proxy.Outbound}
	t.Cleanup(client.Close)
	testwait.Within(t, 5*time.Second, "answered", func() bool { return answers(client) == "a" })
	api.Put(kubetest.Slice("echo-1", "echo", b.Address), kubetest.Service("later", 8080))
	testwait.Within(t, 5*time.Second, "moved", func() bool { return answers(client) == "b" })

	api.Rewind(then)
	testwait.Within(t, 10*time.Second, "back", func() bool { return answers(client) == "a" })
	// Each kind is checked, and listed anew, by itself: the services may follow the endpoints.
	for name, want := range map[string]int{"echo": http.StatusOK, "later": http.StatusNotFound} {
		testwait.Within(t, 5*time.Second, fmt.Sprintf("cluster %s: status %d", name, want), func() bool {
			code, _ := meshtest.Ask(t, control.Admin, "/resources?type=cds&name="+name+".default.svc.cluster.local:8080")
			return code == want
		})
	}
	testwait.Within(t, 5*time.Second, "in the audit", func() bool {
		s := part(t, control, "endpointslices")
		return s.Relists > 0 && s.LastRelist.Reason == "rewound"
	})
	// From there on the mesh follows as ever.
	api.Put(kubetest.Slice("echo-1", "echo", b.Address))
	testwait.Within(t, 5*time.Second, "moved again", func() bool { return answers(client) == "b" })
}

// A directory that is lost is named, wherever it is asked, and what it held is
// served on; found again, it is followed.
func TestLostDirectoryIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "static")
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := "'@type': " + string(mesh.TypeCluster) + "\nname: " + name + "\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	source := meshtest.NewManifests(t)
	control := meshtest.StartControl(t, source.Source(), meshtest.Policy, func(c *controlplane.Config) {
		c.Static = static.New(static.Config{Dir: dir})
	})
	ready := func(ok func(admin.Readiness) bool) {
		t.Helper()
		testwait.Within(t, 10*time.Second, "ready so", func() bool {
			code, r := readiness(t, control)
			return code == http.StatusOK && ok(r)
		})
	}
	ready(func(r admin.Readiness) bool { return r.Connected && r.Reason == "" && len(r.Sources) == 2 })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	ready(func(r admin.Readiness) bool {
		return !r.Connected && r.LagSeconds > 0 && strings.Contains(r.Reason, "static resources: cannot list "+dir)
	})
	if s := part(t, control, "static resources"); s.Reason == "" || s.LagSeconds == 0 {
		t.Errorf("static resources: %+v", s)
	}
	if s := part(t, control, "manifests"); s.Reason != "" || s.LagSeconds != 0 {
		t.Errorf("manifests: %+v", s)
	}
	if code, _ := meshtest.Ask(t, control.Admin, "/resources?type=cds&name=before"); code != http.StatusOK {
		t.Errorf("what the directory held is gone: %d", code)
	}
	write("after")
	ready(func(r admin.Readiness) bool { return r.Connected && r.Reason == "" && r.LagSeconds == 0 })
	testwait.Within(t, 10*time.Second, "followed again", func() bool {
		code, _ := meshtest.Ask(t, control.Admin, "/resources?type=cds&name=after")
		gone, _ := meshtest.Ask(t, control.Admin, "/resources?type=cds&name=before")
		return code == http.StatusOK && gone == http.StatusNotFound
	})
}
