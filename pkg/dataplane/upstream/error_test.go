package upstream

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// lateContext is a context whose timer has not fired yet, though its time may be over.
type lateContext struct {
	context.Context //nolint:containedctx // it is one
	left            time.Duration
}

func (l lateContext) Deadline() (time.Time, bool) { return time.Now().Add(l.left), true }

// The upstream knows a gRPC call's deadline too, and its timer may fire first.
func TestResetAtTheDeadline(t *testing.T) {
	reset := func(code http2.ErrCode) error { return http2.StreamError{StreamID: 1, Code: code} }
	for _, c := range []struct {
		err  error
		left time.Duration
		want Reason
	}{
		{reset(http2.ErrCodeCancel), -time.Millisecond, Deadline},
		{reset(http2.ErrCodeCancel), 10 * time.Millisecond, Deadline},
		{reset(http2.ErrCodeCancel), time.Second, ResetBeforeHeaders},
		{reset(http2.ErrCodeInternal), -time.Millisecond, Deadline},
		{reset(http2.ErrCodeInternal), 10 * time.Millisecond, ResetBeforeHeaders},
		{reset(http2.ErrCodeRefusedStream), -time.Millisecond, Deadline},
		{reset(http2.ErrCodeRefusedStream), 10 * time.Millisecond, StreamRefused},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), -time.Millisecond, Deadline},
		{io.ErrUnexpectedEOF, -time.Millisecond, Deadline},
		{io.ErrUnexpectedEOF, 10 * time.Millisecond, ResetBeforeHeaders},
	} {
		ctx := lateContext{t.Context(), c.left}
		if got := sendError(ctx, netip.AddrPort{}, c.err, false, true).Reason; got != c.want {
			t.Errorf("%v with %s left: %s, want %s", c.err, c.left, got, c.want)
		}
	}
}
