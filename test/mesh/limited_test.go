package mesh

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/kube"
)

// TestLimitedByTheAPIServer: readiness, the audit and the log say that the API
// server limits our requests, and what it asks to wait; serving goes on, and what changed meanwhile comes after it.
func TestLimitedByTheAPIServer(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", a.Address))
	proxy := apiproxy.Start(t, "http://"+api.Address, nil)
	var log meshtest.Log
	source, err := kube.New(kube.Config{
		Kubeconfig: proxy.Kubeconfig(), CheckInterval: 3 * time.Second, Logger: hclog.New(&hclog.LoggerOptions{Output: &log}),
	})
	if err != nil {
		t.Fatal(err)
	}
	control := meshtest.StartControl(t, source, meshtest.Policy)
	user := meshtest.StartProxy(t, control.XDS, nil)
	client := &meshtest.Client{Address: user.Outbound}
	defer client.Close()
	if !answeredWithin(client, "a", 20*time.Second) {
		t.Fatal("no request was answered")
	}
	reachedAndFresh(t, control)

	proxy.Set(func(f *apiproxy.Faults) { f.Status[""] = http.StatusTooManyRequests })
	proxy.Cut() // the watches too
	api.Put(kubetest.Slice("echo-1", "echo", b.Address))
	limited := proxy.Address + " limits our requests (429), asks to wait 1s"
	testwait.Within(t, 20*time.Second, "told by /readyz and the audit", func() bool {
		code, r := readiness(t, control)
		s := control.Audit(t).Server
		return code == http.StatusOK && !r.Connected && strings.Contains(r.Reason, limited) &&
			strings.Contains(s.SourceReason, limited) && strings.Contains(part(t, control, "endpointslices").Reason, limited)
	})
	testwait.Within(t, 20*time.Second, "told by the log", func() bool { return log.Has("cluster away", limited) })
	if answer := answers(client); answer != "a" {
		t.Errorf("answered by %q meanwhile", answer)
	}

	proxy.Set(func(f *apiproxy.Faults) { clear(f.Status) })
	testwait.Within(t, 20*time.Second, "the change", func() bool { return answers(client) == "b" })
	reachedAndFresh(t, control)
	for _, kind := range []string{"services", "endpointslices"} {
		if p := part(t, control, kind); p.Relists > 0 {
			t.Errorf("%s were listed anew: %+v", kind, p.LastRelist)
		}
	}
}
