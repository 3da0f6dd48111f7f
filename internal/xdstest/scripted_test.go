package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// scripted is a server that knows just enough of xDS to try this package on:
// names or "*", versions that are labels, nonces that count, a refused
// response is not sent again until something changes. A node named "banned"
// is turned away.
type scripted struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu      sync.Mutex // guards the rest
	bodies  map[mesh.ResourceName][]byte
	changed chan struct{} // closed at the next change
	nacks   []string
}

func newScripted() *scripted {
	return &scripted{bodies: map[mesh.ResourceName][]byte{}, changed: make(chan struct{})}
}

func (s *scripted) system() System {
	return System{
		Register: func(r grpc.ServiceRegistrar) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s) },
		Publish:  s.publish,
		Audit: func([]string) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Sprintf("nacks: %s\n", strings.Join(s.nacks, ", "))
		},
	}
}

func (s *scripted) publish(u mesh.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range u.Put {
		s.bodies[mesh.ResourceName{Type: r.Type, Name: r.Name}] = r.Body
	}
	for _, r := range u.Remove {
		delete(s.bodies, r.ResourceName)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// look gives the labels of the resources that the names select, and a channel
// that is closed when this is no longer so.
func (s *scripted) look(t mesh.Type, names map[string]bool) (labels map[string]string, bodies map[string]*anypb.Any, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	labels, bodies = map[string]string{}, map[string]*anypb.Any{}
	for n, body := range s.bodies {
		if n.Type == t && (names["*"] || names[n.Name]) {
			_, labels[n.Name], _ = Describe(t, body)
			bodies[n.Name] = &anypb.Any{TypeUrl: string(t), Value: body}
		}
	}
	return labels, bodies, s.changed
}

func (s *scripted) refused(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nacks = append(s.nacks, message)
}

// scriptedType is the state of one type on one stream.
type scriptedType struct {
	names map[string]bool
	sent  map[string]string
}

// requests reads into a channel that ends with the stream.
func requests[M any](stream grpc.ServerStream, receive func() (M, error)) <-chan M {
	c := make(chan M)
	go func() {
		defer close(c)
		for m, err := receive(); err == nil; m, err = receive() {
			select {
			case c <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return c
}

func (s *scripted) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	types := map[mesh.Type]*scriptedType{}
	in, nonce := requests(stream, stream.Recv), 0
	for {
		_, _, changed := s.look("", nil)
		for t, st := range types {
			labels, bodies, _ := s.look(t, st.names)
			r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(t)}
			for name, label := range labels {
				if st.sent[name] != label {
					r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: label, Resource: bodies[name]})
				}
			}
			for name := range st.sent {
				if labels[name] == "" {
					r.RemovedResources = append(r.RemovedResources, name)
				}
			}
			if st.sent = labels; len(r.Resources)+len(r.RemovedResources) == 0 {
				continue
			}
			nonce++
			r.Nonce = fmt.Sprint(nonce)
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case m, ok := <-in:
			if !ok {
				return nil
			}
			if m.GetNode().GetId() == "banned" {
				return status.Error(codes.PermissionDenied, "node banned may not connect")
			}
			if m.GetErrorDetail() != nil {
				s.refused(m.GetErrorDetail().GetMessage())
			}
			t := mesh.Type(m.GetTypeUrl())
			if types[t] == nil {
				types[t] = &scriptedType{names: map[string]bool{}, sent: m.GetInitialResourceVersions()}
			}
			for _, name := range m.GetResourceNamesSubscribe() {
				types[t].names[name] = true
			}
			for _, name := range m.GetResourceNamesUnsubscribe() {
				delete(types[t].names, name)
				delete(types[t].sent, name)
			}
		}
	}
}

func (s *scripted) StreamAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	types, nonces := map[mesh.Type]*scriptedType{}, map[mesh.Type]string{}
	in, nonce := requests(stream, stream.Recv), 0
	for {
		_, _, changed := s.look("", nil)
		for t, st := range types {
			labels, bodies, _ := s.look(t, st.names)
			if maps.Equal(labels, st.sent) {
				continue
			}
			nonce++
			st.sent, nonces[t] = labels, fmt.Sprint(nonce)
			r := &discoveryv3.DiscoveryResponse{TypeUrl: string(t), Nonce: nonces[t], VersionInfo: nonces[t], Resources: slices.Collect(maps.Values(bodies))}
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case m, ok := <-in:
			if !ok {
				return nil
			}
			t := mesh.Type(m.GetTypeUrl())
			if m.GetResponseNonce() != nonces[t] {
				continue
			}
			if m.GetErrorDetail() != nil {
				s.refused(m.GetErrorDetail().GetMessage())
			}
			if types[t] == nil {
				types[t] = &scriptedType{sent: map[string]string{"": "nothing was sent yet"}}
			}
			types[t].names = map[string]bool{}
			for _, name := range m.GetResourceNames() {
				types[t].names[name] = true
			}
		}
	}
}
