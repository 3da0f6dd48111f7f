package upstream

import (
	"context"
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

// What the request waited for is told, but for one that was never sent: there it is what kept it.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		e     Error
		begun bool
		want  error
	}{
		{Error{Err: io.ErrUnexpectedEOF}, false, ErrNoAnswer},
		{Error{Err: io.ErrUnexpectedEOF}, true, ErrNoEnd},
		{Error{Unsent: true}, false, ErrNoAnswer},
		{Error{Unsent: true, Err: io.ErrClosedPipe}, false, io.ErrClosedPipe},
	} {
		before := c.e
		if got := c.e.Late(c.begun); got.Reason != Deadline || got.Err != c.want || c.e != before { //nolint:errorlint // the very one
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// ending is a context whose deadline is over, and whose timer fires after so many looks at it.
type ending struct {
	context.Context //nolint:containedctx // it is a context itself
	looks           int
}

func (e *ending) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func (e *ending) Err() error {
	if e.looks--; e.looks >= 0 {
		return nil
	}
	return context.DeadlineExceeded
}

// The timer may fire at any moment, between two looks too.
func TestEndOfTimeIsTheDeadline(t *testing.T) {
	for looks := range 5 {
		if got := EndOf(&ending{Context: t.Context(), looks: looks}); got != Deadline {
			t.Errorf("when the timer fires after %d looks: %q", looks, got)
		}
	}
}

func TestEndOf(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for want, ctx := range map[Reason]context.Context{
		None: soon, Deadline: ended(context.DeadlineExceeded), ClientGone: ended(nil), EndpointEjected: ended(&Error{Reason: EndpointEjected}),
	} {
		if got := EndOf(ctx); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
