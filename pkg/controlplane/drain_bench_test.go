package controlplane_test

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sync/errgroup"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// BenchmarkRound is one look at all streams of 1,000 nodes, for 1 drain and for 50 at a time.
func BenchmarkRound(b *testing.B) {
	const nodes, pods = 1000, 50
	var all []at
	for i := range pods {
		all = append(all, at{pod: fmt.Sprint("p", i), ip: fmt.Sprint("10.0.1.", i+1)})
	}
	source := newObjects(serviceOf("echo"), sliceOf("echo", append(all, at{pod: "last", ip: "10.0.2.1"})...))
	control := meshtest.StartControl(b, source, meshtest.Policy)
	conn, err := grpc.NewClient(control.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	testwait.Within(b, patience, "synced", func() bool { return control.Audit(b).Server.Synced })
	for i := range nodes {
		s := xdstest.Open(b, conn, xdstest.Delta, &corev3.Node{Id: fmt.Sprint("n", i)})
		s.Subscribe(mesh.TypeEndpoint, echo)
		s.Ack(s.Expect())
	}
	for i := range all {
		all[i].terminating = true
	}
	source.put(sliceOf("echo", append(all, at{pod: "last", ip: "10.0.2.1"})...))
	for _, n := range []int{1, pods} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				var g errgroup.Group
				for i := range n {
					g.Go(func() error {
						meshtest.Ask(b, control.Admin, fmt.Sprintf("/drain?timeout=0s&namespace=default&pod=p%d", i))
						return nil
					})
				}
				_ = g.Wait()
			}
		})
	}
}
