package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// kind is what a probe is for.
type kind int

const (
	startup kind = iota
	readiness
	liveness
)

// tally counts a probe's results against its thresholds.
type tally struct {
	spec *v1.Probe
	same int32
	last bool
	any  bool
}

// add takes a result, and tells whether it makes a verdict: as many in a row as the threshold wants.
func (t *tally) add(good bool) (verdict bool) {
	if !t.any || t.last != good {
		t.same, t.last, t.any = 0, good, true
	}
	t.same++
	threshold := max(1, t.spec.SuccessThreshold)
	if !good {
		threshold = t.spec.FailureThreshold
		if threshold <= 0 {
			threshold = 3
		}
	}
	return t.same >= threshold
}

// probeLoop asks a running container again and again, and hands verdicts to say, until ctx ends.
func probeLoop(ctx context.Context, t target, spec *v1.Probe, say func(good bool, why error)) {
	timer := time.NewTimer(time.Duration(spec.InitialDelaySeconds) * time.Second)
	defer timer.Stop()
	count := tally{spec: spec}
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := t.probe(ctx, spec)
		if ctx.Err() != nil {
			return
		}
		if count.add(err == nil) {
			say(err == nil, err)
		}
		timer.Reset(seconds(spec.PeriodSeconds, 10))
	}
}

// grpc asks the health service.
func (t target) grpc(ctx context.Context, g *v1.GRPCAction) error {
	conn, err := grpc.NewClient(net.JoinHostPort(t.ip, itoa(g.Port)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	request := &healthgrpc.HealthCheckRequest{}
	if g.Service != nil {
		request.Service = *g.Service
	}
	answer, err := healthgrpc.NewHealthClient(conn).Check(ctx, request)
	if err != nil {
		return err
	}
	if s := answer.GetStatus(); s != healthgrpc.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %s", s)
	}
	return nil
}

// errNotRunning is for a command in a container that does not run.
var errNotRunning = errors.New("the container does not run")
