package upstream

import (
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// The upstream knows a gRPC call's deadline too, and its timer may fire first.
func TestResetForTheDeadline(t *testing.T) {
	reset := func(code http2.ErrCode) error { return http2.StreamError{StreamID: 1, Code: code} }
	for _, c := range []struct {
		err  error
		left time.Duration
		want bool
	}{
		{reset(http2.ErrCodeCancel), -time.Millisecond, true},
		{reset(http2.ErrCodeCancel), 10 * time.Millisecond, true},
		{reset(http2.ErrCodeCancel), time.Second, false},
		{reset(http2.ErrCodeInternal), 10 * time.Millisecond, false},
		{reset(http2.ErrCodeRefusedStream), 10 * time.Millisecond, false},
		{io.ErrUnexpectedEOF, 10 * time.Millisecond, false},
	} {
		e := &Error{Reason: ResetBeforeHeaders, Err: c.err}
		if got := e.DueTo(time.Now().Add(c.left)); got != c.want {
			t.Errorf("%v with %s left: %v", c.err, c.left, got)
		}
		if e.DueTo(time.Time{}) {
			t.Errorf("%v without a deadline", c.err)
		}
	}
}
