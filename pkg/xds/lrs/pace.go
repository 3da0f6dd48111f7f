package lrs

import (
	"context"
	"time"
)

// pace holds one stream to paceBurst requests at once, and then one every
// paceInterval. It belongs to the stream's goroutine.
type pace struct {
	// next is when the request is due that would leave no burst unused; it lies
	// at most paceBurst intervals ahead.
	next  time.Time
	timer *time.Timer
}

func newPace() *pace {
	timer := time.NewTimer(0)
	timer.Stop()
	return &pace{next: time.Now(), timer: timer}
}

func (p *pace) stop() { p.timer.Stop() }

// wait waits until another request may be taken; false when ctx ends, or done
// is closed, before.
func (p *pace) wait(ctx context.Context, done <-chan struct{}) bool {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(paceInterval)
	ahead := p.next.Sub(now) - paceBurst*paceInterval
	if ahead <= 0 {
		return true
	}
	p.timer.Reset(ahead)
	select {
	case <-p.timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-done:
		return false
	}
}
