package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/drain/drainv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// drainService is the barrier on the xDS port, for data planes.
type drainService struct {
	drainv1.UnimplementedDrainServiceServer
	server *Server
}

// Drain answers once the pod is drained, or when the time is over.
func (d drainService) Drain(ctx context.Context, r *drainv1.DrainRequest) (*drainv1.DrainResponse, error) {
	timeout := r.GetTimeout().AsDuration()
	switch {
	case r.GetNamespace() == "" || r.GetPod() == "":
		return nil, status.Error(codes.InvalidArgument, "namespace, pod: both are needed")
	case timeout < 0 || timeout > drain.MaxTimeout:
		return nil, status.Errorf(codes.InvalidArgument, "timeout: 0 to %v", drain.MaxTimeout)
	}
	report, err := d.server.Drain(ctx, drain.Target{Namespace: r.GetNamespace(), Pod: r.GetPod()}, timeout)
	switch {
	case errors.Is(err, admin.ErrUnavailable):
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return nil, status.FromContextError(err).Err()
	}
	return responseOf(report), nil
}

func responseOf(r drain.Report) *drainv1.DrainResponse {
	out := &drainv1.DrainResponse{Drained: r.Drained, Instance: r.Instance, Endpoints: r.Endpoints, LeftOut: uint32(r.LeftOut)}
	for _, w := range r.Waits {
		out.Waits = append(out.Waits, &drainv1.Wait{
			Reason: string(w.Reason), Node: string(w.Node), Cluster: w.Cluster, Endpoint: w.Endpoint, Since: timestamp(w.Since), Detail: w.Detail,
		})
	}
	return out
}

func timestamp(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}
