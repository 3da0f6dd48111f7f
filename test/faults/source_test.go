package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
)

// source is where the control plane has its services from.
type source interface {
	// args are xds-server's, to read from it.
	args() []string
	// put makes a service with these endpoints, by instance name, and no others.
	put(service string, addresses map[string]string)
}

// files is a directory of manifests.
type files struct {
	*meshtest.Manifests
	annotations map[string]string
}

func newFiles(t testing.TB) source {
	t.Helper()
	return files{Manifests: meshtest.NewManifests(t)}
}

// newOutlierFiles asks for outlier detection, without which Envoy avoids no endpoint.
func newOutlierFiles(t testing.TB) source {
	t.Helper()
	return files{Manifests: meshtest.NewManifests(t), annotations: map[string]string{
		"outlier": "consecutive-5xx=1,base-ejection-time=30s,max-ejection-percent=100",
	}}
}

func (f files) args() []string { return []string{"--manifests", f.Dir} }

func (f files) put(service string, addresses map[string]string) {
	f.Put(meshtest.Service{Name: service, Annotations: f.annotations, Addresses: slices.Sorted(maps.Values(addresses))})
}

// ballast gives echo many endpoints that nobody uses, because they terminate. Each n
// gives others, so that every client is sent all of them again.
func (f files) ballast(t testing.TB, n int) {
	t.Helper()
	var b strings.Builder
	for slice := range 5 {
		if slice > 0 {
			b.WriteString("---\n")
		}
		fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata: {name: ballast-%d, labels: {kubernetes.io/service-name: echo}}\n"+
			"addressType: IPv4\nports: [{name: http, port: 9}]\nendpoints:\n", slice)
		for i := range 100 {
			fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d], conditions: {ready: false, serving: true, terminating: true}}\n", n, slice, i)
		}
	}
	path := filepath.Join(f.Dir, "ballast.yaml")
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// api is a Kubernetes API server with a proxy before it.
type api struct {
	*kubetest.Server
	proxy      *apiproxy.Proxy
	kubeconfig string
	// slices are the names of each service's slices, as the server has them.
	slices map[string]map[string]bool
}

func newAPI(t testing.TB) source {
	t.Helper()
	a := &api{Server: kubetest.NewServer(t), slices: make(map[string]map[string]bool)}
	a.proxy = apiproxy.Start(t, "http://"+a.Address, nil)
	a.kubeconfig = a.proxy.Kubeconfig()
	return a
}

func (a *api) args() []string { return []string{"--kubeconfig", a.kubeconfig} }

func (a *api) put(service string, addresses map[string]string) {
	if a.slices[service] == nil {
		a.slices[service] = make(map[string]bool)
		a.Put(kubetest.Service(service, 8080))
	}
	for name, address := range addresses {
		if !a.slices[service][name] {
			a.slices[service][name] = true
			a.Put(kubetest.Slice(name, service, address))
		}
	}
	for name := range a.slices[service] {
		if addresses[name] == "" {
			delete(a.slices[service], name)
			a.Remove(kubetest.Slice(name, service, "0.0.0.0"))
		}
	}
}

// backup gives what restores the server to what it is now: later changes never
// were, and their versions are used anew.
func (a *api) backup() (restore func()) {
	state, was := a.Save(), make(map[string]map[string]bool)
	for service, names := range a.slices {
		was[service] = maps.Clone(names)
	}
	return func() {
		a.slices = was
		a.Rewind(state)
	}
}
