package endpoints_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// newcomer is a pod that refuses connections until it is ready.
type newcomer struct {
	ready time.Time

	mu sync.Mutex // guards what follows
	// came is when connections came once it was ready, of whom who they are from.
	came []time.Time
	of   map[*endpoints.Set]bool
}

func (n *newcomer) has(client *endpoints.Set) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[client]
}

// toNewcomer is one client's upstream to it.
type toNewcomer struct {
	fake
	pod *newcomer
	set **endpoints.Set
}

func (u *toNewcomer) Probe(context.Context) error {
	u.pod.mu.Lock()
	defer u.pod.mu.Unlock()
	if now := time.Now(); !now.Before(u.pod.ready) {
		if a == u.cfg.Address.String() && !u.pod.of[*u.set] {
			u.pod.came, u.pod.of[*u.set] = append(u.pod.came, now), true
		}
		return nil
	}
	return &upstream.Error{Reason: upstream.ConnectRefused}
}

// refused has a client fail to dial it.
func refused(t *testing.T, client *endpoints.Set) {
	t.Helper()
	for {
		l, err := client.Cluster("c").Acquire(t.Context(), endpoints.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if l.Key.Address.String() == a {
			l.DialFailed(upstream.ConnectRefused)
			return
		}
		l.End(true)
	}
}

// A hundred clients are refused by a new pod in the same moment. Their back-off
// has jitter: when it takes connections, they come over a while, and all of them.
func TestBackoffSpreadsACrowd(t *testing.T) {
	const clients = 100
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprint("it is the only pod: ", alone), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := &newcomer{ready: time.Now().Add(10 * time.Second), of: make(map[*endpoints.Set]bool)}
				w := &world{t: t, dead: map[string]bool{}, probes: map[string]int{}}
				var traffic sync.WaitGroup
				for range clients {
					var set *endpoints.Set
					set = endpoints.New(endpoints.Config{
						Reporter: w, Logger: hclog.NewNullLogger(), Ejected: func(upstream.Reason) {},
						NewUpstream: func(c upstream.Config) upstream.Upstream {
							return &toNewcomer{fake{w: w, cfg: c}, pod, &set}
						},
					})
					defer set.Close()
					es := []mesh.Endpoint{listed(a)}
					if !alone {
						es = append(es, listed(b))
					}
					_ = set.Apply(&discovery.Cluster{Name: "c", Endpoints: es})
					refused(t, set)
					traffic.Go(func() {
						for !pod.has(set) && t.Context().Err() == nil {
							if l, err := set.Cluster("c").Acquire(t.Context(), endpoints.Request{}); err == nil {
								l.End(true)
							}
							pass(20 * time.Millisecond) // the next request
						}
					})
				}
				traffic.Wait()
				if len(pod.came) != clients {
					t.Fatalf("%d of %d clients came", len(pod.came), clients)
				}
				slices.SortFunc(pod.came, time.Time.Compare)
				most := 0
				for i, from := range pod.came {
					n := slices.IndexFunc(pod.came[i:], func(at time.Time) bool { return at.Sub(from) >= 50*time.Millisecond })
					if n < 0 {
						n = clients - i
					}
					most = max(most, n)
				}
				if most > clients*4/10 {
					t.Errorf("%d of %d came within 50 ms", most, clients)
				}
			})
		})
	}
}
