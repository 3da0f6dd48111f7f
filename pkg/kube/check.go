package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// times are what one check interval divides into. A change that is not
// delivered shows in the check after the next one: within two steps, the grace
// and what the lists take.
type times struct {
	// interval is within how long a fault is found.
	interval time.Duration
	// probe is how long the server may be silent before it is asked something,
	// and how long it has to answer, unless it is slow (pace).
	probe time.Duration
	// step is between two checks of a kind.
	step time.Duration
	// grace is how long a change may be on its way, from a server that answers at once (pace).
	grace time.Duration
	// watch is how long a watch is asked to last; at its end stands a bookmark.
	watch time.Duration
	// silence is how long a watch may say nothing, its end included.
	silence time.Duration
	// whole is between two comparisons of everything, wanted or not.
	whole time.Duration
}

// timesOf divides an interval. A watch's time is in whole seconds; client-go
// takes one of less than a second for a fault.
func timesOf(interval time.Duration) times {
	t := times{
		interval: interval, probe: interval / 6, step: interval * 2 / 5, grace: interval / 15,
		watch: max(2*time.Second, (interval / 3).Truncate(time.Second)), whole: 20 * interval,
	}
	t.silence = t.watch + t.probe
	return t
}

// check is what one kind's live reads have shown. It is pure: it is told what
// was read, and says what that means.
type check struct {
	// goal is the version of the live list of last time: once the watermark has
	// reached it, everything until then was delivered. "" for none.
	goal string
	// wholeAt is when everything was last compared, failures how often the feed
	// had failed or been cut off until then.
	wholeAt  time.Time
	failures uint64
}

// verdict is what a live list's version means.
type verdict int

const (
	// blind: the versions cannot be compared.
	blind verdict = iota
	// wentBack: the server is older than what it has delivered.
	wentBack
	// unproven: nothing shows that the watch delivers; everything has to be compared.
	unproven
	// proven: the watch has delivered all until the last check.
	proven
)

// judge takes the version of a live list, with the watermark of before it was
// asked for, and how often the feed failed or was cut off.
func (c *check) judge(live, mark string, failures uint64, now time.Time, whole time.Duration) verdict {
	if !comparableVersion(live) || !comparableVersion(mark) {
		return blind
	}
	goal := c.goal
	c.goal = live
	switch {
	case before(live, mark):
		c.goal = ""
		return wentBack
	case live == mark && c.failures == failures:
		return proven
	case goal != "" && before(mark, goal), c.failures != failures, now.Sub(c.wholeAt) >= whole:
		c.wholeAt, c.failures = now, failures
		return unproven
	}
	return proven
}

// keepChecking compares the feed with live reads until ctx ends.
func (f *feed) keepChecking(ctx context.Context) {
	c := check{wholeAt: time.Now()}
	timer := time.NewTimer(f.jittered())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if f.health.checkable(f.kind) {
			f.check(ctx, &c)
		}
		timer.Reset(f.jittered())
	}
}

// jittered is the time to the next check: replicas, and kinds, do not ask in step.
func (f *feed) jittered() time.Duration {
	return f.step - rand.N(f.step/8+1)
}

// check makes one check. An error is noted, and changes nothing that is held.
func (f *feed) check(ctx context.Context, c *check) {
	mark, began := f.held.mark(), time.Now()
	list, err := f.liveList(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		f.checkFailed(ctx, err, began)
		return
	}
	switch c.judge(list.GetResourceVersion(), mark, f.health.failures(f.kind), began, f.whole) {
	case blind:
		f.health.checked(f.kind, time.Time{})
	case wentBack:
		f.relist(rewound, fmt.Sprintf("the server is at version %s, and was at %s", list.GetResourceVersion(), mark))
	case unproven:
		f.compare(ctx, c)
	case proven:
		f.health.checked(f.kind, began)
	}
}

// compare lists everything live, gives the watch the time to deliver it, and
// compares. What has not come counts as missing only where the watch has passed it, or was there and stood still: one that
// brings older changes is behind, as one is that has just begun, or whose machine does not get to run. They have until an
// interval is over. While there is no watch, nothing can be said of it.
func (f *feed) compare(ctx context.Context, c *check) {
	began := time.Now()
	f.held.track()
	defer f.held.untrack()
	live, version, err := f.liveForms(ctx)
	if err != nil {
		c.wholeAt = time.Time{}
		f.checkFailed(ctx, err, began)
		return
	}
	for listed := time.Now(); ; {
		mark, grace, slept := f.held.mark(), f.pace.grace(f.grace, f.interval), time.Now()
		if sleep(ctx, grace) != nil {
			return
		}
		late := time.Since(slept) - grace
		d := f.held.differs(live, version)
		if d.reason == "" {
			f.health.checked(f.kind, began)
			return
		}
		since, watched := f.health.watchedSince(f.kind)
		coming := !d.certain && (!watched || since.After(slept) || late > grace/2 || f.held.mark() != mark)
		switch over := time.Since(listed) > f.interval; {
		case coming && !over:
		case !d.certain && !watched:
			c.wholeAt = time.Time{} // the next check compares again
			return
		default:
			c.goal = ""
			f.relist(d.reason, fmt.Sprintf("%s is otherwise in a live read at version %s", d.key, version))
			return
		}
	}
}

// liveForms lists the whole kind past every cache, page by page.
func (f *feed) liveForms(ctx context.Context) (map[mesh.Key]form, string, error) {
	all := make(map[mesh.Key]form)
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.liveList(ctx, options)
		if err != nil {
			return nil, "", err
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			all[mesh.Key{Kind: f.kind, Namespace: m.GetNamespace(), Name: m.GetName()}] = form{string(m.GetUID()), m.GetResourceVersion()}
			return nil
		})
		if err != nil {
			return nil, "", err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, page.GetResourceVersion(), nil
		}
	}
}

// pageSize is how many objects a page of a live listing has, as client-go's own.
const pageSize = 500

// listObject is an API list.
type listObject interface {
	runtime.Object
	metav1.ListInterface
}

// liveList asks for a list that is answered from the server's store: no
// resource version is given (Kubernetes API, "Resource versions").
func (f *feed) liveList(ctx context.Context, o metav1.ListOptions) (listObject, error) {
	limit, began := f.pace.limit(f.probe, f.interval), time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	list, err := f.list(limited, f.client, o)
	if ctx.Err() == nil && (err == nil || unanswered(err)) {
		f.pace.answered(time.Since(began))
	}
	if err != nil {
		return nil, err
	}
	l, ok := list.(listObject)
	if !ok {
		return nil, fmt.Errorf("list %s: %T is no list", f.plural, list)
	}
	return l, nil
}

// checkFailed notes a live read that failed, unless it is the end. A listing
// that expired between two pages is read anew next time.
func (f *feed) checkFailed(ctx context.Context, err error, began time.Time) {
	if ctx.Err() == nil && !expired(err) {
		f.health.checkFailed(f.kind, err, began)
	}
}
