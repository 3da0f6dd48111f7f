package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// grace is for what is left in flight at the end of a drain to tell its clients so.
const grace = time.Second

// Run serves until ctx ends or Quit is called, drains, and gives nil. An error
// is a server or the discovery client that failed by itself.
func (p *Proxy) Run(ctx context.Context) error {
	// stop ends what must outlive ctx while the proxy drains.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(serving)
	for _, l := range p.admin {
		group.Go(func() error {
			err := l.server.Serve(l.listener)
			if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("serve %s: %w", l.name, err)
		})
	}
	for _, l := range p.traffic {
		group.Go(func() error { return l.relay.Serve(failed, l.listener) })
	}
	group.Go(func() error {
		p.limits.memory.Run(failed)
		return nil
	})
	if p.access != nil {
		group.Go(func() error {
			if err := p.access.Run(failed); err != nil {
				// Traffic matters more.
				p.log.Error("access log ended", "err", err)
			}
			return nil
		})
	}
	group.Go(func() error { p.pulse.Run(failed); return nil })
	group.Go(func() error {
		if err := p.discovery.Run(failed); err != nil && failed.Err() == nil {
			return fmt.Errorf("discovery: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		defer stop()
		p.wait(ctx, failed)
		p.wind(failed)
		return nil
	})
	for _, l := range p.listeners {
		p.log.Info("listening", "name", l.Name, "address", l.Address, "protocol", l.Protocol)
	}
	err := group.Wait()
	p.closeSets()
	if p.accessFile != nil {
		_ = p.accessFile.Close()
	}
	return err
}

// wait waits until it is time to drain.
func (p *Proxy) wait(ctx, failed context.Context) {
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-failed.Done():
			return
		case <-p.quit:
			return
		case <-p.closeNow:
			p.closeListeners()
		case <-p.closeLater:
			if later == nil {
				timer := time.NewTimer(p.cfg.DrainTime)
				defer timer.Stop()
				later = timer.C
			}
		case <-later:
			p.closeListeners()
		}
	}
}

// wind drains and closes everything that serves.
func (p *Proxy) wind(failed context.Context) {
	p.tracker.Drain()
	p.log.Info("draining", "active", p.tracker.Active(), "time", p.cfg.DrainTime.String())
	bounded, cancel := context.WithTimeout(failed, p.cfg.DrainTime)
	defer cancel()
	if p.tracker.WaitQuiet(bounded, p.cfg.QuietTime) != nil {
		p.log.Warn("drain time is over with work in flight", "active", p.tracker.Active())
	}
	p.closeListeners()
	p.tracker.Expire()
	rest, cancelRest := context.WithTimeout(failed, grace)
	defer cancelRest()
	_ = p.tracker.WaitQuiet(rest, 0)
	p.tracker.Abort()
	for _, l := range p.admin {
		_ = l.server.Close()
	}
	p.log.Info("drained")
}

// closeListeners stops accepting traffic; the admin side stays.
func (p *Proxy) closeListeners() {
	for _, l := range p.traffic {
		_ = l.listener.Close()
	}
}
