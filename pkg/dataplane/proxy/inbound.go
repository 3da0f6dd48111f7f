package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxInbound bounds the local destinations that are remembered.
const maxInbound = 1024

// inboundConnectTimeout is short: the application is on this host.
const inboundConnectTimeout = time.Second

const inboundPrefix, inboundHTTP2 = "inbound:", "inbound-h2:"

func inboundName(dst netip.AddrPort, http2 bool) string {
	if http2 {
		return inboundHTTP2 + dst.String()
	}
	return inboundPrefix + dst.String()
}

// Inbound is the Discovery of inbound traffic: each address of this host that
// clients were going to is a cluster of one endpoint, made when first asked for.
// The Set must be its own, as it applies to it.
type Inbound struct {
	Set *endpoints.Set

	mu sync.Mutex // guards all below, and serialises what is applied
	// known is in no order; used is in that of first use.
	known map[string]*discovery.Cluster
	used  []string
}

// Cluster gives the cluster of a name that inboundName made; it never waits.
func (d *Inbound) Cluster(_ context.Context, name string) (*discovery.Cluster, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.known[name]; c != nil {
		return c, nil
	}
	text, http2 := strings.CutPrefix(name, inboundHTTP2)
	dst, err := netip.ParseAddrPort(strings.TrimPrefix(text, inboundPrefix))
	if err != nil {
		return nil, fmt.Errorf("inbound %s: %w", name, discovery.ErrUnknownService)
	}
	if len(d.used) >= maxInbound {
		// The oldest gives way; what is in flight to it finishes.
		d.Set.Remove(d.used[0]) //nolint:contextcheck // the set's goroutines outlive the connection
		delete(d.known, d.used[0])
		d.used = d.used[1:]
	}
	c := &discovery.Cluster{
		Name: name, ServiceName: name, HTTP2: http2, Policy: discovery.LeastRequest, ConnectTimeout: inboundConnectTimeout,
		Endpoints: []mesh.Endpoint{{EndpointKey: mesh.EndpointKey{Address: dst}, Weight: 1}},
	}
	if err := d.Set.Apply(c); err != nil { //nolint:contextcheck // as above
		return nil, err
	}
	if d.known == nil {
		d.known = map[string]*discovery.Cluster{}
	}
	d.known[name] = c
	d.used = append(d.used, name)
	return c, nil
}

// Quiet is the Reporter of a Set that nobody reports from: the control plane
// does not know inbound destinations.
type Quiet struct{}

// Count does nothing.
func (Quiet) Count(string, mesh.EndpointKey, discovery.Load) {}

// Distrust does nothing.
func (Quiet) Distrust(string) {}
