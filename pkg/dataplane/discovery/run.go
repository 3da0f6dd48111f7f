package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	tickEvery      = 250 * time.Millisecond
	resolveTimeout = 5 * time.Second
	// saveDelay gathers changes into one write; retrySave is after one that failed.
	saveDelay = time.Second
	retrySave = 10 * time.Second
)

// owner is the state of one Run.
type owner struct {
	*Client
	wg       sync.WaitGroup
	session  *session
	server   int
	failures int
	retry    *time.Timer
	saveAt   time.Time
	sweptAt  time.Time
	// logged is resource → the refusal that was last warned about.
	logged map[mesh.ResourceName]string
	// down is true from a failure until the next good message: one Warn for an outage.
	down bool
}

// Run puts the last good configuration in force, then holds the stream until
// ctx ends, and then gives nil. It may be called once.
func (c *Client) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("discovery: Run was called twice")
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &owner{
		Client: c, retry: time.NewTimer(0),
		logged: map[mesh.ResourceName]string{}, sweptAt: time.Now(),
	}
	defer cancel()
	defer o.retry.Stop()
	if o.state != nil {
		o.restore(ctx)
		o.wg.Go(func() { o.state.run(ctx) })
	}
	o.loop(ctx)
	cancel()
	o.wg.Wait()
	if o.state != nil && !o.saveAt.IsZero() {
		o.state.save(c.core.Snapshot())
	}
	o.update(func(s *Status) { s.Connected, s.Since = false, time.Now() })
	return nil
}

func (o *owner) restore(ctx context.Context) {
	resources := o.state.load()
	loaded, problems := o.core.Restore(time.Now(), resources)
	for _, err := range problems {
		o.log.Warn("part of the last good configuration is unusable", "err", err)
	}
	if loaded > 0 {
		o.log.Info("last good configuration is in force", "clusters", loaded)
	}
	o.update(func(s *Status) { s.LoadedFromDisk = loaded })
	o.perform(ctx, o.core.take())
}

func (o *owner) loop(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.inbox.wake:
			o.readInbox(time.Now())
		case e := <-o.events:
			if ctx.Err() != nil {
				return // the stream ended because we do
			}
			o.handle(time.Now(), e)
		case <-o.retry.C:
			o.connect(ctx)
		case <-ticker.C:
			o.tick(time.Now())
		}
		o.perform(ctx, o.core.take())
	}
}

func (o *owner) readInbox(now time.Time) {
	subscribed, distrusted, reset := o.inbox.take()
	for _, name := range sortedKeys(subscribed) {
		if o.core.subs[name] == nil && !subscribed[name] {
			if err := o.full(); err != nil {
				o.publish(answer{dropped: true, status: ClusterStatus{Name: name}, err: fmt.Errorf("cluster %s: %w", name, err)})
				continue
			}
		}
		o.core.Subscribe(now, name, subscribed[name])
	}
	for _, name := range sortedKeys(reset) {
		o.log.Info("reset", "cluster", name)
		o.core.Reset(now, name)
	}
	for _, name := range sortedKeys(distrusted) {
		o.core.Distrust(now, name)
	}
}

// full is why a name that came with a request cannot be subscribed; nil when it can.
func (o *owner) full() error {
	switch {
	case o.core.unknown >= o.config.MaxUnknown:
		return fmt.Errorf("%w: %d names without a service are subscribed already", ErrDiscoveryLimit, o.core.unknown)
	case len(o.core.subs) >= o.config.MaxClusters:
		return fmt.Errorf("%w: %d clusters are subscribed already", ErrDiscoveryLimit, len(o.core.subs))
	}
	return nil
}

func (o *owner) tick(now time.Time) {
	if now.Sub(o.sweptAt) >= idleTimeout/16 || now.Sub(o.sweptAt) >= absentIdle/4 {
		o.sweptAt = now
		o.slots.Range(func(name, v any) bool {
			o.core.Used(name.(string), time.Unix(0, v.(*slot).usedAt.Load()))
			return true
		})
	}
	o.core.Tick(now)
	if o.state == nil {
		return
	}
	if o.state.failed.Swap(false) && o.saveAt.IsZero() {
		o.saveAt = now.Add(retrySave)
	}
	if !o.saveAt.IsZero() && !now.Before(o.saveAt) {
		o.saveAt = time.Time{}
		o.state.offer(o.core.Snapshot())
	}
}

// perform does what the core wants. Callers are told before the acknowledgement goes out.
func (o *owner) perform(ctx context.Context, out output) {
	for _, a := range out.answers {
		o.publish(a)
	}
	for _, r := range out.rejected {
		o.rejected(r)
	}
	for _, rung := range out.rungs {
		o.metrics.watchdog.WithLabelValues(rung).Inc()
		o.log.Debug("watchdog", "rung", rung, "server", o.config.Servers[o.server])
	}
	for _, host := range out.resolve {
		o.resolve(ctx, host)
	}
	if out.save && o.state != nil && o.saveAt.IsZero() {
		o.saveAt = time.Now().Add(saveDelay)
	}
	if out.reconnect != "" {
		o.leave(out.next, errors.New(out.reconnect))
		return
	}
	o.send(out.requests)
	if out.report && o.session != nil {
		o.session.reportNow()
	}
}

func (o *owner) send(requests []*discoveryv3.DeltaDiscoveryRequest) {
	for _, r := range requests {
		if o.session == nil {
			return
		}
		select {
		case o.session.requests <- r:
		default: // hundreds of requests wait: nothing passes
			o.core.offerNothing = true
			o.core.Closed()
			o.leave(true, errors.New("it takes no requests"))
		}
	}
}

func (o *owner) rejected(r rejection) {
	o.metrics.rejected.WithLabelValues(r.name.Type.Short()).Inc()
	if text := r.version + " " + r.text; o.logged[r.name] != text {
		if len(o.logged) > o.config.MaxClusters {
			clear(o.logged)
		}
		o.logged[r.name] = text
		o.log.Warn("resource refused", "type", r.name.Type.Short(), "name", r.name.Name, "version", r.version, "err", r.text)
	}
}

// publish puts an answer where callers look, and wakes those that wait.
func (o *owner) publish(a answer) {
	a.changed = make(chan struct{})
	v := o.slot(a.status.Name)
	if a.dropped {
		o.slots.CompareAndDelete(a.status.Name, v)
	}
	close(v.answer.Swap(&a).changed)
}

func (o *owner) resolve(ctx context.Context, host string) {
	o.wg.Go(func() {
		limited, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupNetIP(limited, "ip", host)
		o.tell(ctx, event{host: host, addrs: addrs, err: err})
	})
}

func (o *owner) handle(now time.Time, e event) {
	switch {
	case e.host != "":
		if e.err != nil {
			o.log.Debug("host name not resolved", "host", e.host, "err", e.err)
		}
		o.core.Resolved(now, e.host, e.addrs, e.err)
	case e.session != o.session: // of a session that was left
	case e.opened:
		e.session.opened = true
		o.log.Info("control plane connected", "server", e.session.server)
		o.core.Opened(now)
		nothing := len(o.core.entries) == 0
		o.update(func(s *Status) {
			s.Connected, s.EverConnected, s.Since = true, true, now
			s.Answered = s.Answered || nothing
		})
	case e.response != nil:
		o.lastMessageAt.Store(now.UnixNano())
		o.log.Debug("response", "type", mesh.Type(e.response.GetTypeUrl()).Short(), "nonce", e.response.GetNonce(),
			"resources", len(e.response.GetResources()), "removed", len(e.response.GetRemovedResources()))
		if o.core.Response(now, e.response) {
			e.session.good, o.failures, o.down = true, 0, false
		}
	default:
		o.core.Closed()
		o.leave(!e.session.good, cause(e.err))
	}
}

// connect begins a session with the server whose turn it is.
func (o *owner) connect(ctx context.Context) {
	if o.session != nil {
		return
	}
	server := o.config.Servers[o.server]
	o.update(func(s *Status) { s.Server = server })
	o.session = newSession(server, o.patience())
	o.session.start(ctx, o)
}

// leave ends the session, and plans the next one after a wait with full jitter.
func (o *owner) leave(next bool, err error) {
	if o.session == nil {
		return
	}
	o.session.cancel()
	server, what := o.session.server, "control plane lost; what is in force stays"
	if !o.session.opened {
		what = "control plane not reached"
	}
	o.session = nil
	if next {
		o.server = (o.server + 1) % len(o.config.Servers)
	}
	o.failures++
	wait := rand.N(o.ceiling())
	o.retry.Reset(wait)
	o.metrics.reconnects.Inc()
	level := o.log.Debug
	if !o.down {
		o.down, level = true, o.log.Warn
	}
	level(what, "server", server, "retry", wait.Round(time.Millisecond).String(), "err", err)
	o.update(func(s *Status) {
		if s.Connected {
			s.Connected, s.Since = false, time.Now()
		}
		s.LastError = fmt.Sprintf("%s: %v", server, err)
	})
}

// patience bounds the opening of a connection and its stream. In the first round
// of all servers one that does not answer at all costs no more than a rung of the
// ladder does; after it the network may just be slow.
func (o *owner) patience() time.Duration {
	if o.failures <= len(o.config.Servers) {
		return answerTimeout
	}
	return connectTimeout
}

// ceiling bounds the next wait. It grows with each round of all servers, so that
// one that is alive is not kept waiting for by those that are not.
func (o *owner) ceiling() time.Duration {
	rounds := o.failures / len(o.config.Servers)
	if o.failures%len(o.config.Servers) != 0 {
		return backoffBase
	}
	return backoffAfter(rounds - 1)
}

// update changes the connection's part of the status; only Run's goroutine does.
func (o *owner) update(change func(*Status)) {
	s := *o.connection.Load()
	change(&s)
	o.connection.Store(&s)
}
