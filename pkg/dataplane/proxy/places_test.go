package proxy_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// Who knows that its request is over finds its place free: as many clients as the limits allow, each of which sends one
// request after another on connections of its own, are never told of a limit, however the endpoints take turns.
func TestPlacesAreFreeWhenTheClientKnows(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		for _, limit := range []uint32{1, 2, 3} {
			t.Run(fmt.Sprintf("grpc=%v/%d", grpc, limit), func(t *testing.T) {
				r := newRig(t)
				var addrs []string
				for i := range 5 {
					addrs = append(addrs, newBackend(t, fmt.Sprint(i), nil).addr)
				}
				r.put2(grpc, func(c *discovery.Cluster) {
					c.Breakers[0].Connections, c.Breakers[0].Requests, c.Policy = limit, limit, discovery.RoundRobin
				}, addrs...)
				var wg sync.WaitGroup
				for range limit {
					wg.Go(func() {
						for range 100 {
							if got := r.ask(t.Context(), grpc, echo, deadlineOf(20*time.Second)); got.proxyStatus != "" || got.status != http.StatusOK {
								t.Errorf("%+v", got)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
