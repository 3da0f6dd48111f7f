package ads

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// BenchmarkManyNames subscribes to many names in one request, and then takes them back: what a stream may
// ask for at once must not keep its owner from the others who ask. It shows that eight
// times the names take about eight times as long.
func BenchmarkManyNames(b *testing.B) {
	for _, count := range []int{12_500, 100_000} {
		wanted := make([]string, 0, count)
		for n := range count {
			h := fnv.New64a()
			fmt.Fprint(h, n)
			wanted = append(wanted, fmt.Sprintf("%x", h.Sum64()))
		}
		for _, delta := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d/delta=%t", count, delta), func(b *testing.B) {
				view := snapshot.New(snapshot.Config{}).View(mesh.View{})
				for b.Loop() {
					now := time.Now()
					s := New(Config{Delta: delta, Policy: ack.Policy{ProbeInterval: time.Second, AckTimeout: time.Second}}, view, now)
					s.Request(Request{Type: mesh.TypeEndpoint, Subscribe: wanted, Names: wanted}, now)
					if got := len(s.Acks().Type(mesh.TypeEndpoint).Names()); got != count {
						b.Fatalf("%d names of %d", got, count)
					}
					s.Request(Request{Type: mesh.TypeEndpoint, Unsubscribe: wanted}, now)
					if s.Acks().Type(mesh.TypeEndpoint).Subscribed() {
						b.Fatal("some are left")
					}
				}
			})
		}
	}
}
