package directory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// How fast a change shows; see the package documentation.
const (
	quietTime    = 25 * time.Millisecond
	quietTimeMax = 100 * time.Millisecond
	settleTime   = 150 * time.Millisecond
	// emptyTime: a file that a shell has just truncated (sed … > FILE) may stay
	// empty for as long as the program takes to write.
	emptyTime    = time.Second
	pollInterval = time.Second
	// rereadInterval: an edit behind a symlink may keep size and time.
	rereadInterval = 30 * time.Second
)

// defaultMaxFileBytes is Config.MaxFileBytes when that is 0.
const defaultMaxFileBytes = 16 << 20

// ErrStopped is Do's error once Run has returned.
var ErrStopped = errors.New("the source has stopped")

// Config configures a Watcher. Dir, What, Parse, Deliver and Synced are required.
type Config[K Key, V any] struct {
	// Dir is the directory.
	Dir string
	// What is what it holds, in the plural.
	What string
	// MaxFileBytes bounds one file; 0 means 16 MiB.
	MaxFileBytes int64
	// Parse decodes one file; its name's ending tells between JSON and YAML. It
	// depends on nothing else.
	Parse func(name string, data []byte) Content[K, V]
	// Deliver takes what all files hold together after each change. It does not
	// keep the map's changes to itself: the map is never changed later.
	Deliver func(map[K]Item[K, V])
	// Synced is called once, after the first Deliver.
	Synced func()
	// Logger may be nil.
	Logger hclog.Logger
}

// Watcher watches a directory; see the package documentation. Run may be called once.
type Watcher[K Key, V any] struct {
	// set once
	cfg      Config[K, V]
	log      hclog.Logger
	requests chan request
	stopped  chan struct{}

	// owned by Run
	watcher *fsnotify.Watcher
	watched os.FileInfo
	files   map[string]*file[K, V]
	// count is how many items were delivered last.
	count int
	// burst is when the first event came that has not been acted on; zero for none.
	burst time.Time
	// rereadAt is when everything was last read whatever its stamp.
	rereadAt time.Time
	// again is when a held version can be judged; zero for none.
	again time.Time
	// clashes are the keys that stand more than once.
	clashes []mesh.Problem
	// problems is what Status shows, sorted; replaced, never changed.
	problems []mesh.Problem

	// atomic
	status atomic.Pointer[mesh.SourceStatus]
}

// request is a Do on its way to Run.
type request struct {
	f func()
	// done takes the one answer; it has room for it.
	done chan error
}

// New makes a Watcher; it touches no file.
func New[K Key, V any](c Config[K, V]) *Watcher[K, V] {
	if c.MaxFileBytes == 0 {
		c.MaxFileBytes = defaultMaxFileBytes
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	w := &Watcher[K, V]{
		cfg: c, log: c.Logger,
		requests: make(chan request), stopped: make(chan struct{}),
		files: make(map[string]*file[K, V]),
	}
	w.status.Store(&mesh.SourceStatus{Since: time.Now(), Reason: "not started"})
	return w
}

// Status is the state as of the last listing, which is at most a second old
// while Run runs.
func (w *Watcher[K, V]) Status() mesh.SourceStatus { return *w.status.Load() }

// Do reads the directory now, delivers what is new, and then calls f in Run's
// goroutine: of an invalid file, its last good items are in force. It waits for
// Run to be running, until ctx ends; it fails when the directory cannot be
// listed, and after Run has returned. f may still be running when ctx ends.
func (w *Watcher[K, V]) Do(ctx context.Context, f func()) error {
	r := request{f: f, done: make(chan error, 1)}
	select {
	case w.requests <- r:
	case <-w.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reread has the next listing read everything, when that is due.
func (w *Watcher[K, V]) reread(now time.Time) {
	if now.Sub(w.rereadAt) < rereadInterval {
		return
	}
	w.rereadAt = now
	for _, one := range w.files {
		one.dirty = true
	}
}

func (w *Watcher[K, V]) do(f func()) error {
	w.rereadAt = time.Time{}
	w.reread(time.Now())
	if err := w.list(time.Now(), false); err != nil {
		return err
	}
	f()
	return nil
}

// Run delivers what the directory holds until ctx ends, and then gives nil. The
// error is for a directory that cannot be listed at the start.
func (w *Watcher[K, V]) Run(ctx context.Context) error {
	defer close(w.stopped)
	if _, err := os.ReadDir(w.cfg.Dir); err != nil {
		return fmt.Errorf("read %s: %w", w.cfg.What, err)
	}
	events, failures := w.watch()
	if w.watcher != nil {
		defer func() { _ = w.watcher.Close() }()
	}
	w.rewatch()
	w.rereadAt = time.Now()
	_ = w.list(w.rereadAt, true) // a failure is in Status
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	wake := time.NewTimer(pollInterval)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.note(e, time.Now())
		case err := <-failures:
			w.log.Warn("directory events lost", "dir", w.cfg.Dir, "err", err)
			w.touch(time.Now(), nil)
		case <-wake.C:
			_ = w.list(time.Now(), false) // a failure is in Status
		case <-poll.C:
			w.rewatch()
			w.reread(time.Now())
			_ = w.list(time.Now(), false)
		case r := <-w.requests:
			r.done <- w.do(r.f)
		}
		if next := w.next(time.Now()); next > 0 {
			wake.Reset(next)
		}
	}
}

// watch starts the event watcher. Without one (the kernel's limits) the
// polling still finds every change, within a second.
func (w *Watcher[K, V]) watch() (<-chan fsnotify.Event, <-chan error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("no directory events, polling only", "dir", w.cfg.Dir, "err", err)
		return nil, nil
	}
	w.watcher = watcher
	return watcher.Events, watcher.Errors
}

// rewatch makes sure that the events are those of the directory that has the
// name now: another one may have taken its place.
func (w *Watcher[K, V]) rewatch() {
	if w.watcher == nil {
		return
	}
	info, err := os.Stat(w.cfg.Dir)
	if err != nil {
		w.watched = nil
		return
	}
	if w.watched != nil && os.SameFile(info, w.watched) && len(w.watcher.WatchList()) > 0 {
		return
	}
	_ = w.watcher.Remove(w.cfg.Dir)
	if err := w.watcher.Add(w.cfg.Dir); err != nil {
		w.log.Warn("no directory events, polling only", "dir", w.cfg.Dir, "err", err)
		return
	}
	w.watched = info
}

// note takes an event.
func (w *Watcher[K, V]) note(e fsnotify.Event, now time.Time) {
	if e.Op == fsnotify.Chmod {
		return
	}
	name := filepath.Base(e.Name)
	if isOurs(name) {
		w.touch(now, func(f *file[K, V]) bool { return f.name == name })
		return
	}
	if strings.HasPrefix(name, "..") || filepath.Clean(e.Name) == filepath.Clean(w.cfg.Dir) {
		w.touch(now, nil)
	}
}

// touch marks the chosen files, or all of them, as changed.
func (w *Watcher[K, V]) touch(now time.Time, which func(*file[K, V]) bool) {
	for _, f := range w.files {
		if which == nil || which(f) {
			f.dirty, f.touched = true, now
		}
	}
	if w.burst.IsZero() {
		w.burst = now
	}
	w.again = now.Add(min(quietTime, max(0, w.burst.Add(quietTimeMax).Sub(now))))
}

// next is how long to wait for the next listing; 0 for none asked for.
func (w *Watcher[K, V]) next(now time.Time) time.Duration {
	if w.again.IsZero() {
		return 0
	}
	return max(w.again.Sub(now), time.Millisecond)
}
