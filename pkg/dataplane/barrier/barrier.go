// Package barrier asks every control plane whether our own pod is drained: it
// is what a preStop hook waits for.
//
// An Asker keeps nothing between two questions. Each question resolves the
// configured names anew and asks all addresses at the same time, over
// connections of its own, until all say yes or the time is over. It is safe for concurrent use.
package barrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/freshmesh/freshmesh/pkg/drain/drainv1"
)

// Config of an Asker.
type Config struct {
	// Servers are the control plane's addresses, as discovery has them. All
	// addresses of a name are asked: it should be that of a headless service.
	Servers []string
	// Namespace and Pod are ours. Pod may be "": then NodeID counts if it is POD.NAMESPACE.
	Namespace, Pod, NodeID string
	// Lookup gives the addresses of a host; nil means the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// DialOptions come after our own, which are plaintext.
	DialOptions []grpc.DialOption
}

// Asker asks.
type Asker struct{ cfg Config }

// New makes an Asker.
func New(c Config) *Asker {
	if i := strings.LastIndexByte(c.NodeID, '.'); c.Pod == "" && i > 0 {
		c.Pod, c.Namespace = c.NodeID[:i], c.NodeID[i+1:]
	}
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return &Asker{c}
}

// Answer is what all control planes say.
type Answer struct {
	Drained bool `json:"drained"`
	// Pod is NAMESPACE/NAME.
	Pod string `json:"pod"`
	// Servers are sorted by address; at least one, each drained, where Drained is set.
	Servers []Server `json:"servers"`
}

// Server is what one of them says.
type Server struct {
	Address string `json:"address"`
	// Instance is "" for one that did not answer; Error says why.
	Instance string `json:"instance,omitempty"`
	Error    string `json:"error,omitempty"`
	Drained  bool   `json:"drained"`
	// Waits say why not.
	Waits []Wait `json:"waits,omitempty"`
}

// Wait is what keeps the pod from being drained; see docs/drain.md for the reasons.
type Wait struct {
	Reason   string    `json:"reason"`
	Node     string    `json:"node,omitempty"`
	Cluster  string    `json:"cluster,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Detail   string    `json:"detail,omitempty"`
}

// ErrNoPod is returned where it is not known which pod is ours.
var ErrNoPod = errors.New("which pod is this? give --pod, or a node id POD.NAMESPACE")

const (
	// answerTime is for what an answer needs beyond the time that it may wait.
	answerTime = 2 * time.Second
	// pause lies between two rounds, round bounds one: then the names are
	// resolved anew, since control planes come and go.
	pause = 500 * time.Millisecond
	round = 5 * time.Second
)

// Ask gives the answer once all servers say that the pod is drained, and
// otherwise the last one when the timeout is over or ctx ends. The error is ErrNoPod.
func (a *Asker) Ask(ctx context.Context, timeout time.Duration) (Answer, error) {
	if a.cfg.Pod == "" || a.cfg.Namespace == "" {
		return Answer{}, ErrNoPod
	}
	end := time.Now().Add(timeout)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		out := a.round(ctx, min(max(time.Until(end), 0), round))
		if out.Drained || !time.Now().Add(pause).Before(end) || ctx.Err() != nil {
			return out, nil
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return out, nil
		}
	}
}

func (a *Asker) round(ctx context.Context, left time.Duration) Answer {
	out := Answer{Pod: a.cfg.Namespace + "/" + a.cfg.Pod, Servers: a.resolve(ctx)}
	var wg sync.WaitGroup
	for i := range out.Servers {
		if s := &out.Servers[i]; s.Error == "" {
			wg.Go(func() { a.ask(ctx, s, left) })
		}
	}
	wg.Wait()
	out.Drained = len(out.Servers) > 0 && !slices.ContainsFunc(out.Servers, func(s Server) bool { return !s.Drained })
	return out
}

// resolve gives all servers, each once; one with an error where a name has no address.
func (a *Asker) resolve(ctx context.Context) []Server {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var out []Server
	for _, server := range a.cfg.Servers {
		host, port, err := net.SplitHostPort(server)
		// localhost is one server, whatever families it has.
		if _, bad := netip.ParseAddr(host); err != nil || bad == nil || host == "localhost" || strings.Contains(server, "://") {
			out = append(out, Server{Address: server})
			continue
		}
		all, err := a.cfg.Lookup(ctx, host)
		if err != nil {
			out = append(out, Server{Address: server, Error: fmt.Sprintf("look up: %v", err)})
		}
		for _, ip := range all {
			out = append(out, Server{Address: net.JoinHostPort(ip.Unmap().String(), port)})
		}
	}
	slices.SortFunc(out, func(a, b Server) int { return cmp.Compare(a.Address, b.Address) })
	return slices.CompactFunc(out, func(a, b Server) bool { return a.Address == b.Address })
}

func (a *Asker) ask(ctx context.Context, s *Server, left time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, left+answerTime)
	defer cancel()
	r, err := a.call(ctx, s.Address, left)
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Drained, s.Instance = r.GetDrained(), r.GetInstance()
	for _, w := range r.GetWaits() {
		wait := Wait{Reason: w.GetReason(), Node: w.GetNode(), Cluster: w.GetCluster(), Endpoint: w.GetEndpoint(), Detail: w.GetDetail()}
		if w.GetSince() != nil {
			wait.Since = w.GetSince().AsTime()
		}
		s.Waits = append(s.Waits, wait)
	}
}

func (a *Asker) call(ctx context.Context, address string, left time.Duration) (*drainv1.DrainResponse, error) {
	target := address
	if !strings.Contains(target, "://") && !strings.HasPrefix(target, "unix:") {
		target = "passthrough:///" + target
	}
	options := append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, a.cfg.DialOptions...)
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	r, err := drainv1.NewDrainServiceClient(conn).Drain(ctx, &drainv1.DrainRequest{
		Namespace: a.cfg.Namespace, Pod: a.cfg.Pod, Timeout: durationpb.New(left),
	})
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	return r, nil
}
