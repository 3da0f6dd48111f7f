package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/manifest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// What one file changed is taken together: between two addresses of a service
// there is no moment in which it has none, or both.
func TestAFileIsOneChange(t *testing.T) {
	dir := t.TempDir()
	write := func(n int) {
		var b strings.Builder
		b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: echo}\nspec: {ports: [{port: 80}]}\n")
		for i := range 1 + n%3 {
			fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: echo-%d, labels: {kubernetes.io/service-name: echo}}\n", i)
			fmt.Fprintf(&b, "addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.0.%d.%d]}]\n", n, i)
		}
		path := filepath.Join(dir, "echo.yaml")
		if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	q := newQueue(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wg.Go(func() {
		if err := manifest.New(manifest.Config{Dir: dir, Logger: hclog.NewNullLogger()}).Run(ctx, q); err != nil {
			t.Error(err)
		}
	})
	slicesNow := map[mesh.Key]string{}
	for n := 0; n < 20; {
		<-q.ready
		b := q.take()
		if len(b.changes) == 0 {
			continue // the sync
		}
		for _, c := range b.changes {
			key := c.Delete.Key
			if c.Put != nil {
				key = c.Put.Metadata().Key
			}
			delete(slicesNow, key)
			if slice, ok := c.Put.(*mesh.EndpointSlice); ok {
				slicesNow[key] = fmt.Sprint(slice.Endpoints[0].Addresses)
			}
		}
		var want []string
		for i := range 1 + n%3 {
			want = append(want, fmt.Sprintf("[10.0.%d.%d]", n, i))
		}
		var got []string
		for _, a := range slicesNow {
			got = append(got, a)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("change %d shows %v, want %v", n, got, want)
		}
		n++
		write(n)
	}
}
