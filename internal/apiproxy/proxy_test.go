package apiproxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	*testing.T
	api    *kubetest.Server
	proxy  *apiproxy.Proxy
	client *http.Client
}

func start(t *testing.T) *rig {
	t.Helper()
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &rig{t, api, apiproxy.Start(t, "http://"+api.Address, nil), &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

// get gives the status and the body; -1 and the error where there is no answer.
func (r *rig) get(path string) (int, string) {
	r.Helper()
	answer, err := r.client.Get("http://" + r.proxy.Address + path)
	if err != nil {
		return -1, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return -1, err.Error()
	}
	return answer.StatusCode, string(body)
}

func (r *rig) want(path string, code int, text string) {
	r.Helper()
	if got, body := r.get(path); got != code || !strings.Contains(body, text) {
		r.Errorf("GET %s: %d %s, want %d and %q", path, got, body, code, text)
	}
}

const services = "/api/v1/services"

func TestPassesAndCounts(t *testing.T) {
	r := start(t)
	r.want(services, 200, `"port":80`)
	r.want(services+"?limit=1", 200, `"port":80`)
	r.want("/api/v1/namespaces/default/services/a", 200, `"port":80`)
	r.want("/api/v1/namespaces/default/services/none", 404, "not found")
	for what, n := range map[string]int{"list services": 1, "probe services": 1, "get services": 2, "watch services": 0} {
		if got := r.proxy.Count(what); got != n {
			t.Errorf("%s: %d, want %d", what, got, n)
		}
	}
}

func TestRefusesDelaysAndStops(t *testing.T) {
	r := start(t)
	r.proxy.Set(func(f *apiproxy.Faults) { f.Status["services"] = 429 })
	r.want(services, 429, "TooManyRequests")
	r.want("/apis/discovery.k8s.io/v1/endpointslices", 200, "10.0.0.1")
	r.proxy.Set(func(f *apiproxy.Faults) { clear(f.Status); f.WatchStatus[""] = 403 })
	r.want(services, 200, "")
	r.want(services+"?watch=true", 403, "Forbidden")
	r.proxy.Set(func(f *apiproxy.Faults) { clear(f.WatchStatus); f.Delay = 100 * time.Millisecond })
	began := time.Now()
	r.want(services, 200, "")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	r.proxy.Stop()
	r.want(services, -1, "refused")
	r.proxy.Start()
	r.want(services, 200, "")
}

// watch reads a watch that was asked to last a second, to its end.
func (r *rig) watch() (int, string) {
	return r.get(services + "?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=100")
}

func TestSilenceAndHang(t *testing.T) {
	r := start(t)
	if code, body := r.watch(); code != 200 || !strings.Contains(body, "ADDED") || !strings.Contains(body, "BOOKMARK") {
		t.Errorf("a watch: %d %s", code, body)
	}
	r.client.Timeout = 1500 * time.Millisecond
	r.proxy.Set(func(f *apiproxy.Faults) { f.Silent["services"], f.Hang["pods"] = true, true })
	if code, body := r.watch(); code != -1 {
		t.Errorf("a silent watch ended: %d %s", code, body)
	}
	r.want("/api/v1/pods", -1, "")
	r.want(services, 200, "")
	r.proxy.Set(func(f *apiproxy.Faults) { clear(f.Silent); clear(f.Hang) })
	r.want("/api/v1/pods", 200, "")
	r.client.Timeout = 10 * time.Second
	if code, body := r.watch(); code != 200 || !strings.Contains(body, "ADDED") {
		t.Errorf("a watch after the cure: %d %s", code, body)
	}
}

func TestRecordRewindResume(t *testing.T) {
	r := start(t)
	then := r.proxy.Record()
	r.api.Put(kubetest.Service("a", 81), kubetest.Service("b", 82))
	r.proxy.Rewind(then)
	r.want(services, 200, `"port":80`)
	r.want(services, 200, `"resourceVersion":"102"`)
	r.want("/api/v1/namespaces/default/services/a", 200, `"port":80`)
	r.want("/api/v1/namespaces/default/services/b", 404, "NotFound")
	r.want("/apis/discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io/service-name%3Da", 200, "10.0.0.1")
	if _, body := r.get("/apis/discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io/service-name%3Db"); strings.Contains(body, "10.0.0.1") {
		t.Errorf("the selector does not choose: %s", body)
	}
	r.proxy.Resume()
	r.want(services, 200, `"port":82`)
}
