package apiproxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// Proxy is a running proxy.
type Proxy struct {
	// Address is 127.0.0.1 and a port that stays the same over Stop and Start.
	Address string

	t         testing.TB
	target    *url.URL
	transport http.RoundTripper
	server    *http.Server
	served    sync.WaitGroup

	mu      sync.Mutex // guards all below
	faults  Faults
	record  *Record       // what is served instead of the target; nil for the target
	changed chan struct{} // closed with every change of anything above
	counts  map[string]int
	conns   map[net.Conn]bool
}

// Faults is what is wrong; the package documentation says what each does. The
// keys are plurals, "" for all.
type Faults struct {
	Silent, Hang        map[string]bool
	Status, WatchStatus map[string]int
	Delay               time.Duration
}

// Start starts a proxy to the server at a URL. transport carries what is passed
// on; nil takes one without credentials.
func Start(tb testing.TB, target string, transport http.RoundTripper) *Proxy {
	tb.Helper()
	u, err := url.Parse(target)
	if err != nil {
		tb.Fatalf("API proxy: %v", err)
	}
	if transport == nil {
		own := &http.Transport{}
		tb.Cleanup(own.CloseIdleConnections)
		transport = own
	}
	p := &Proxy{
		Address: "127.0.0.1:0", t: tb, target: u, transport: transport,
		changed: make(chan struct{}), counts: map[string]int{}, conns: map[net.Conn]bool{},
		faults: Faults{Silent: map[string]bool{}, Hang: map[string]bool{}, Status: map[string]int{}, WatchStatus: map[string]int{}},
	}
	p.Start()
	tb.Cleanup(p.Stop)
	return p
}

// Start opens the port again after Stop.
func (p *Proxy) Start() {
	p.t.Helper()
	l, err := testaddr.Listen(context.Background(), p.Address)
	if err != nil {
		p.t.Fatalf("API proxy: %v", err)
	}
	p.Address = l.Addr().String()
	server := &http.Server{Handler: p, ConnState: p.track} //nolint:gosec // its clients are tests
	p.server = server
	p.served.Go(func() { _ = server.Serve(l) })
}

// Stop closes the port and cuts every connection: new ones are refused.
func (p *Proxy) Stop() {
	_ = p.server.Close()
	p.served.Wait()
}

// Cut closes every connection of now; new ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Kubeconfig writes a kubeconfig file for the proxy, and gives its path.
func (p *Proxy) Kubeconfig() string {
	p.t.Helper()
	return kubetest.Kubeconfig(p.t, "http://"+p.Address)
}

// Set changes what is wrong, in one step, and wakes all requests that wait.
func (p *Proxy) Set(edit func(*Faults)) { p.change(func() { edit(&p.faults) }) }

// Count is how many requests have come so far: "list services", "probe
// services" (a list of one), "get services", "watch services".
func (p *Proxy) Count(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[what]
}

// Counts is all of Count at once.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	case http.StateActive, http.StateIdle:
	}
}

// now gives what is wrong for a resource, and a channel that is closed when that may have changed.
func (p *Proxy) now(resource string) (state, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.faults
	return state{
		silent: f.Silent[resource] || f.Silent[""], hang: f.Hang[resource] || f.Hang[""],
		status: max(f.Status[resource], f.Status[""]), watchStatus: max(f.WatchStatus[resource], f.WatchStatus[""]),
		delay: f.Delay, record: p.record,
	}, p.changed
}

type state struct {
	silent, hang        bool
	status, watchStatus int
	delay               time.Duration
	record              *Record
}

// ServeHTTP passes a request on, or does not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := parse(r)
	p.mu.Lock()
	p.counts[q.verb+" "+q.resource]++
	p.mu.Unlock()
	s, _ := p.now(q.resource)
	if !sleep(r.Context(), s.delay) || q.verb != watching && !p.unhung(r.Context(), q.resource) {
		return
	}
	s, _ = p.now(q.resource)
	switch {
	case s.status != 0:
		refuse(w, s.status, q.resource)
	case q.verb == watching && s.watchStatus != 0:
		refuse(w, s.watchStatus, q.resource)
	case s.record != nil:
		p.replay(w, r, q, s.record)
	default:
		p.pass(w, r, q)
	}
}

// unhung waits while the resource hangs; false when the client gave up.
func (p *Proxy) unhung(ctx context.Context, resource string) bool {
	for {
		s, changed := p.now(resource)
		if !s.hang {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass sends the request to the target and its answer back.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, q request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := r.Clone(ctx)
	out.RequestURI, out.Host = "", p.target.Host
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.URL.Path = strings.TrimSuffix(p.target.Path, "/") + r.URL.Path
	out.Header.Del("Authorization") // the transport's own
	out.Header.Del("Connection")
	answer, err := p.transport.RoundTrip(out)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			refuse(w, http.StatusBadGateway, err.Error())
		}
		return
	}
	defer func() { _ = answer.Body.Close() }()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if q.verb != watching {
		_, _ = io.Copy(w, answer.Body)
		return
	}
	p.stream(ctx, cancel, w, answer.Body, q.resource)
}

// stream passes a watch's bytes on until it is silent; then it stays open until
// the client goes, or the resource is silent no more.
func (p *Proxy) stream(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter, from io.Reader, resource string) {
	rewound := make(chan struct{})
	go func() { // ends with ctx, which ends with the request
		defer close(rewound)
		p.endWhen(ctx, cancel, func(s state) bool { return s.record != nil })
	}()
	defer func() { cancel(); <-rewound }()
	_ = http.NewResponseController(w).Flush()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if s, _ := p.now(resource); s.silent {
			p.endWhen(ctx, cancel, func(state) bool { s, _ := p.now(resource); return !s.silent })
			return
		}
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return
		}
	}
}

// endWhen waits until something is so, and cancels; or until ctx ends.
func (p *Proxy) endWhen(ctx context.Context, cancel context.CancelFunc, so func(state) bool) {
	for {
		s, changed := p.now("")
		if so(s) {
			cancel()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
