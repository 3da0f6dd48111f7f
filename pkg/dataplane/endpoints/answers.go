package endpoints

import (
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// Header gives the first value of a field, "" for none, whatever the case of the
// name: http.Header does, and the heads of package message.
type Header interface {
	Get(name string) string
}

func answerOf(status int) event {
	switch {
	case status >= 502 && status <= 504:
		return answerGateway
	case status >= 500:
		return answerBad
	}
	return answerGood
}

func grpcStatus(h Header) (codes.Code, bool) {
	v := h.Get("Grpc-Status")
	if v == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 32)
	return codes.Code(n), err == nil
}

// httpStatus is the HTTP status that Envoy's outlier detection takes for a gRPC status.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.OK:
		return http.StatusOK
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return http.StatusInternalServerError
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unauthenticated:
	}
	return http.StatusBadRequest
}

// retryAfter is how long the endpoint wants to be left alone; 0 for no such wish.
func retryAfter(status int, h Header) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	if ms, err := strconv.ParseUint(h.Get("Grpc-Retry-Pushback-Ms"), 10, 31); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
