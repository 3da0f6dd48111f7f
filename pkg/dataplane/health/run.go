package health

import (
	"context"
	"net/netip"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// Target is what is checked, and who hears of it.
type Target struct {
	Check   discovery.HealthCheck
	Address netip.AddrPort
	// Authority is what an HTTP check's Host is when the check has none.
	Authority string
	// Traffic is closed once the cluster has had traffic.
	Traffic <-chan struct{}
	// Report hears of the first result and of each turn, from Run's goroutine;
	// why is "" for healthy. It must not block.
	Report func(healthy bool, why string)
}

// Run checks until ctx ends.
func Run(ctx context.Context, t Target) {
	if t.Check.Port > 0 {
		t.Address = netip.AddrPortFrom(t.Address.Addr(), t.Check.Port)
	}
	ask, told, stop := prober(ctx, t)
	defer stop()
	r := &runner{Target: t}
	traffic := t.Traffic
	timer := time.NewTimer(upTo(t.Check.InitialJitter))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case result := <-told:
			r.take(result)
			continue
		case <-traffic:
			// From now on the shorter interval holds, for the wait that is under way too.
			traffic = nil
			if !r.state.Known() {
				continue
			}
			timer.Reset(r.state.Wait(t.Check, true))
			continue
		case <-timer.C:
		}
		bounded, cancel := context.WithTimeout(ctx, t.Check.Timeout)
		result := ask(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.take(result)
		timer.Reset(r.state.Wait(t.Check, traffic == nil))
	}
}

type runner struct {
	Target
	state State
}

func (r *runner) take(result Result) {
	if r.state.Take(r.Check, result) {
		r.Report(r.state.Healthy(), result.Why)
	}
}

// prober gives what asks once, and what tells unasked, which is nil for most
// kinds; stop ends both.
func prober(ctx context.Context, t Target) (ask func(context.Context) Result, told <-chan Result, stop func()) {
	none := func() {}
	switch t.Check.Kind {
	case discovery.CheckHTTP:
		return func(ctx context.Context) Result { return askHTTP(ctx, t) }, nil, none
	case discovery.CheckGRPC:
		return watchGRPC(ctx, t)
	case discovery.CheckTCP:
	}
	return func(ctx context.Context) Result { return askTCP(ctx, t) }, nil, none
}

func bad(err error) Result { return Result{Why: err.Error()} }
