package xdstest

import (
	"fmt"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Response is a response of either protocol.
type Response struct {
	Type mesh.Type
	// Nonce is as the server sent it.
	Nonce string
	// Version is version_info, or system_version_info in delta.
	Version string
	// Resources are in the order of the response.
	Resources []Received
	// Removed is removed_resources; always nil in state of the world.
	Removed []string
}

// Received is a resource in a response.
type Received struct {
	Name string
	// Version is the resource's own version in delta, "" in state of the world.
	Version string
	// Label is what Describe finds in the body.
	Label string
	Body  []byte
}

// Names gives the names of the resources, sorted.
func (r *Response) Names() []string {
	names := make([]string, len(r.Resources))
	for i, x := range r.Resources {
		names[i] = x.Name
	}
	slices.Sort(names)
	return names
}

// String gives "eds +x@v1 +y@v2 -z": resources with their labels, and what was
// removed, each sorted; "eds empty" for a response without either.
func (r *Response) String() string {
	var words []string
	for _, x := range r.Resources {
		words = append(words, "+"+x.Name+"@"+x.Label)
	}
	slices.Sort(words)
	for _, name := range slices.Sorted(slices.Values(r.Removed)) {
		words = append(words, "-"+name)
	}
	if len(words) == 0 {
		words = []string{"empty"}
	}
	return r.Type.Short() + " " + strings.Join(words, " ")
}

func sotwResponse(m *discoveryv3.DiscoveryResponse) (*Response, error) {
	r := &Response{Type: mesh.Type(m.GetTypeUrl()), Nonce: m.GetNonce(), Version: m.GetVersionInfo()}
	for _, a := range m.GetResources() {
		if a.GetTypeUrl() != m.GetTypeUrl() {
			return nil, fmt.Errorf("a resource of type %s in a response of type %s", a.GetTypeUrl(), m.GetTypeUrl())
		}
		name, label, err := Describe(r.Type, a.GetValue())
		if err != nil {
			return nil, fmt.Errorf("describe a resource of type %s: %w", r.Type, err)
		}
		r.Resources = append(r.Resources, Received{Name: name, Label: label, Body: a.GetValue()})
	}
	return r, nil
}

func deltaResponse(m *discoveryv3.DeltaDiscoveryResponse) (*Response, error) {
	r := &Response{
		Type: mesh.Type(m.GetTypeUrl()), Nonce: m.GetNonce(), Version: m.GetSystemVersionInfo(),
		Removed: m.GetRemovedResources(),
	}
	for _, x := range m.GetResources() {
		if x.GetResource().GetTypeUrl() != m.GetTypeUrl() {
			return nil, fmt.Errorf("a resource of type %s in a response of type %s", x.GetResource().GetTypeUrl(), m.GetTypeUrl())
		}
		body := x.GetResource().GetValue()
		name, label, err := Describe(r.Type, body)
		if err != nil {
			return nil, fmt.Errorf("describe %s %s: %w", r.Type, x.GetName(), err)
		}
		if name != x.GetName() {
			return nil, fmt.Errorf("resource %q holds a message named %q", x.GetName(), name)
		}
		r.Resources = append(r.Resources, Received{Name: name, Version: x.GetVersion(), Label: label, Body: body})
	}
	return r, nil
}
