package kube

import (
	"context"
	"errors"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// prober asks the server something whenever it has been silent for long, and
// closes connections that seem to be dead. A dead connection looks like a
// quiet one, and HTTP/2's own pings take 45 s to tell (30 s of silence, 15 s
// for the answer); HTTP/1.1 has none. Owned by keepProbing.
type prober struct {
	*Source
	// suspect is true when connections from before may be dead.
	suspect bool
	// dropped is when connections were last closed. A server that is only slow
	// must get the time to begin the watches anew.
	dropped time.Time
}

// keepProbing probes until ctx ends.
func (s *Source) keepProbing(ctx context.Context) {
	tick := time.NewTicker(s.probe)
	defer tick.Stop()
	p := &prober{Source: s}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if st := s.Status(); st.Connected && !p.suspect && time.Since(st.LastSeenAt) < s.probe {
			continue
		}
		p.ask(ctx)
	}
}

// ask asks for one Service live, past every cache, and notes the answer.
func (p *prober) ask(ctx context.Context) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, p.pace.limit(p.probe, p.interval))
	defer cancel()
	_, err := p.client.CoreV1().Services("").List(limited, metav1.ListOptions{Limit: 1})
	if ctx.Err() != nil {
		return
	}
	if err == nil || unanswered(err) {
		p.pace.answered(time.Since(began))
	}
	if err == nil {
		p.health.reached()
	} else {
		p.health.failed(err, "list services", began)
	}
	if unanswered(err) && p.Status().LastSeenAt.Before(began) {
		p.suspect = true
	}
	if p.suspect && time.Since(p.dropped) >= 2*p.probe {
		p.log.Debug("connections closed", "server", p.server)
		p.dropConnections()
		// While nothing answers, what is dialled anew may be dead as well.
		p.suspect, p.dropped = unanswered(err), time.Now()
	}
}

// unanswered tells whether a request failed for want of any answer.
func unanswered(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout()
}
