package health

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// maxBackoff is between two dials for gRPC checks.
const maxBackoff = time.Second

// watchGRPC gives a Check, and a channel of what a Watch tells.
func watchGRPC(ctx context.Context, t Target) (ask func(context.Context) Result, told <-chan Result, stop func()) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("freshmesh-health-check"), grpc.WithDisableServiceConfig(),
		// A check within the back-off must still see the endpoint come back
		// before its time is over.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: maxBackoff / 10, Multiplier: 2, MaxDelay: min(maxBackoff, t.Check.Timeout/2)},
			MinConnectTimeout: t.Check.Timeout,
		}),
	}
	if t.Check.Host != "" {
		options = append(options, grpc.WithAuthority(t.Check.Host))
	}
	cc, err := grpc.NewClient("passthrough:///"+t.Address.String(), options...)
	if err != nil {
		return func(context.Context) Result { return bad(err) }, nil, func() {}
	}
	client := healthpb.NewHealthClient(cc)
	request := &healthpb.HealthCheckRequest{Service: t.Check.Service}
	watching, cancel := context.WithCancel(ctx)
	tells := make(chan Result)
	var wg sync.WaitGroup
	wg.Go(func() { watch(watching, cc, request, t.Check.Interval, tells) })
	ask = func(ctx context.Context) Result {
		resp, err := client.Check(ctx, request, grpc.WaitForReady(true))
		if err != nil {
			return bad(err)
		}
		return serving(resp)
	}
	return ask, tells, func() {
		cancel()
		_ = cc.Close()
		wg.Wait()
	}
}

// watch passes on what the server tells; it ends with ctx, or where the server has no Watch.
func watch(ctx context.Context, cc *grpc.ClientConn, request *healthpb.HealthCheckRequest, pause time.Duration, tells chan<- Result) {
	for {
		err := watchOnce(ctx, cc, request, tells)
		if ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// watchOnce watches until the stream ends. It ends it itself once the server has said GOAWAY: one that
// stops in order waits for its streams, and this one would never end.
func watchOnce(ctx context.Context, cc *grpc.ClientConn, request *healthpb.HealthCheckRequest, tells chan<- Result) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stream, err := healthpb.NewHealthClient(cc).Watch(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	wg.Go(func() {
		cc.WaitForStateChange(ctx, connectivity.Ready)
		cancel()
	})
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case tells <- serving(resp):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func serving(resp *healthpb.HealthCheckResponse) Result {
	s := resp.GetStatus()
	if s == healthpb.HealthCheckResponse_SERVING {
		return Result{Good: true}
	}
	return Result{Why: s.String(), Decisive: s == healthpb.HealthCheckResponse_NOT_SERVING}
}
