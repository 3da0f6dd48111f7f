package xds

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Refusal is why a stream was refused or ended for what its client sent; also
// the metric label.
type Refusal string

// The refusals.
const (
	// RefusedMalformed: a request that does not decode, or lacks a field that it must have.
	RefusedMalformed Refusal = "malformed"
	// RefusedNames: more names than Config.MaxNames.
	RefusedNames Refusal = "names"
	// RefusedStreams: more streams of one node than Config.MaxNodeStreams.
	RefusedStreams Refusal = "node_streams"
	// RefusedMessageBytes: a request larger than the gRPC server takes.
	RefusedMessageBytes Refusal = "message_bytes"
	// RefusedNodeBytes: node metadata larger than Config.MaxNodeBytes.
	RefusedNodeBytes Refusal = "node_bytes"
	// RefusedNotReady: the source has not synced.
	RefusedNotReady Refusal = "not_ready"
)

var refusals = [...]Refusal{RefusedMalformed, RefusedNames, RefusedStreams, RefusedMessageBytes, RefusedNodeBytes, RefusedNotReady}

// refused is a gRPC status with its reason.
type refused struct {
	reason Refusal
	status *status.Status
}

func refusal(reason Refusal, code codes.Code, format string, args ...any) error {
	return &refused{reason: reason, status: status.New(code, fmt.Sprintf(format, args...))}
}

// Error implements error.
func (r *refused) Error() string { return r.status.Err().Error() }

// GRPCStatus is what gRPC sends to the client.
func (r *refused) GRPCStatus() *status.Status { return r.status }

// count counts a refusal; any other error is none.
func (m *metrics) count(err error) {
	if r, ok := errors.AsType[*refused](err); ok {
		m.refused.WithLabelValues(string(r.reason)).Inc()
	}
}
