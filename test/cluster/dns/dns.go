// Package dns answers the names of a cluster, as its DNS add-on does
// (https://github.com/kubernetes/dns, specification 1.1.0): services, headless
// services and the hostnames of their pods, external names; A, AAAA and CNAME.
//
// Concurrency: Run owns all goroutines; Set may be called by any.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

const (
	domain = ".svc.cluster.local."
	// ttl is CoreDNS's for a cluster, in seconds.
	ttl = 5
)

// Server answers questions.
type Server struct {
	client   kubernetes.Interface
	address  string
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister

	mu    sync.Mutex // guards extra
	extra map[string][]netip.Addr
}

// New makes a server for an address.
func New(client kubernetes.Interface, address netip.Addr) *Server {
	return &Server{client: client, address: netip.AddrPortFrom(address, 53).String(), extra: make(map[string][]netip.Addr)}
}

// Set gives a name outside the cluster some addresses; without any the name is gone.
func (s *Server) Set(name string, addresses ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name = strings.TrimSuffix(strings.ToLower(name), ".") + "."
	if len(addresses) == 0 {
		delete(s.extra, name)
		return
	}
	s.extra[name] = addresses
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(s.client, 0)
	s.services = factory.Core().V1().Services().Lister()
	s.slices = factory.Discovery().V1().EndpointSlices().Lister()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	factory.WaitForCacheSyncWithContext(ctx)
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", s.address)
	if err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	streams, err := config.Listen(ctx, "tcp", s.address)
	if err != nil {
		_ = packets.Close()
		return fmt.Errorf("dns: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		_ = packets.Close()
		_ = streams.Close()
	})()
	var group errgroup.Group
	group.Go(func() error { return s.servePackets(packets) })
	group.Go(func() error { return s.serveStreams(streams) })
	return group.Wait()
}

func (s *Server) servePackets(conn net.PacketConn) error {
	buffer := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		if answer := s.answer(buffer[:n], true); answer != nil {
			_, _ = conn.WriteTo(answer, from) // who asked may be gone
		}
	}
}

func (s *Server) serveStreams(listener net.Listener) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		group.Go(func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			for s.answerStream(conn) == nil {
			}
		})
	}
}

// answer gives the response to a question, nil for none.
func (s *Server) answer(question []byte, packet bool) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return nil
	}
	limit := 512
	if packet {
		limit = max(limit, bufferSize(&parser))
	} else {
		limit = 65535
	}
	records, known := s.lookup(strings.ToLower(q.Name.String()), 0)
	response := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	if !known {
		response.RCode = dnsmessage.RCodeNameError
	}
	for _, r := range records {
		if r.Header.Type == q.Type || r.Header.Type == dnsmessage.TypeCNAME {
			response.Answers = append(response.Answers, r)
		}
	}
	packed, err := response.Pack()
	if err != nil {
		return nil
	}
	if len(packed) > limit {
		response.Truncated, response.Answers = true, nil
		packed, _ = response.Pack() // as above, and less
	}
	return packed
}

// bufferSize is how much the client takes by UDP (RFC 6891).
func bufferSize(parser *dnsmessage.Parser) int {
	_ = parser.SkipAllQuestions()
	_ = parser.SkipAllAnswers()
	_ = parser.SkipAllAuthorities()
	for {
		h, err := parser.AdditionalHeader()
		if err != nil {
			return 0
		}
		if h.Type == dnsmessage.TypeOPT {
			return int(h.Class)
		}
		if parser.SkipAdditional() != nil {
			return 0
		}
	}
}

// lookup gives the records of a name, and whether it exists.
func (s *Server) lookup(name string, depth int) ([]dnsmessage.Resource, bool) {
	s.mu.Lock()
	extra, ok := s.extra[name]
	s.mu.Unlock()
	if ok {
		return addressRecords(name, extra), true
	}
	in, ok := strings.CutSuffix(name, domain)
	if !ok {
		return nil, false
	}
	parts := strings.Split(in, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, false
	}
	namespace, service, host := parts[len(parts)-1], parts[len(parts)-2], ""
	if len(parts) == 3 {
		host = parts[0]
	}
	object, err := s.services.Services(namespace).Get(service)
	switch {
	case err != nil:
		return nil, false
	case object.Spec.Type == v1.ServiceTypeExternalName && host == "" && depth < 8:
		return s.alias(name, object.Spec.ExternalName, depth)
	case object.Spec.ClusterIP != v1.ClusterIPNone && host == "":
		var addresses []netip.Addr
		for _, ip := range object.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(ip); err == nil {
				addresses = append(addresses, a)
			}
		}
		return addressRecords(name, addresses), true
	default:
		addresses := s.endpoints(object, host)
		return addressRecords(name, addresses), len(addresses) > 0
	}
}

func (s *Server) alias(name, target string, depth int) ([]dnsmessage.Resource, bool) {
	target = strings.TrimSuffix(strings.ToLower(target), ".") + "."
	to, err := dnsmessage.NewName(target)
	if err != nil {
		return nil, false
	}
	records := []dnsmessage.Resource{{Header: recordHeader(name, dnsmessage.TypeCNAME), Body: &dnsmessage.CNAMEResource{CNAME: to}}}
	more, _ := s.lookup(target, depth+1)
	return append(records, more...), true
}

// endpoints gives the addresses of a headless service's ready endpoints, or of those with a hostname.
func (s *Server) endpoints(service *v1.Service, host string) []netip.Addr {
	all, err := s.slices.EndpointSlices(service.Namespace).List(selectorOf(service))
	if err != nil {
		return nil
	}
	seen := make(map[netip.Addr]bool)
	var addresses []netip.Addr
	for _, slice := range all {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range slice.Endpoints {
			if r := e.Conditions.Ready; r != nil && !*r || host != "" && (e.Hostname == nil || *e.Hostname != host) {
				continue
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && !seen[a] {
					seen[a] = true
					addresses = append(addresses, a)
				}
			}
		}
	}
	return addresses
}
