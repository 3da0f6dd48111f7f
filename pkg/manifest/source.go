package manifest

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
	pollInterval = time.Second
)

// defaultMaxFileBytes is Config.MaxFileBytes when that is 0.
const defaultMaxFileBytes = 16 << 20

// errStopped is Read's error once Run has returned.
var errStopped = errors.New("the source has stopped")

// Config configures a Source.
type Config struct {
	// Dir is the directory.
	Dir string
	// MaxFileBytes bounds one file; 0 means 16 MiB.
	MaxFileBytes int64
	// Logger may be nil.
	Logger hclog.Logger
}

// Source is the mesh.Source over a directory; see the package documentation.
// Run may be called once.
type Source struct {
	// set once
	dir      string
	maxBytes int64
	log      hclog.Logger
	requests chan request
	stopped  chan struct{}

	// owned by Run
	sink      mesh.Sink
	watcher   *fsnotify.Watcher
	watched   os.FileInfo
	files     map[string]*file
	delivered map[mesh.Key]mesh.Object
	// burst is when the first event came that has not been acted on; zero for none.
	burst time.Time
	// again is when a held version can be judged; zero for none.
	again time.Time
	// clashes are the objects that stand more than once.
	clashes []mesh.Problem
	// problems is what Status shows, sorted; replaced, never changed.
	problems []mesh.Problem

	// atomic
	status atomic.Pointer[mesh.SourceStatus]
}

var _ mesh.Source = (*Source)(nil)

// request is a Read on its way to Run.
type request struct {
	service mesh.Key
	// reply has room for the one answer.
	reply chan answer
}

type answer struct {
	objects []mesh.Object
	err     error
}

// New makes a Source; it touches no file.
func New(c Config) *Source {
	s := &Source{
		dir:       c.Dir,
		maxBytes:  c.MaxFileBytes,
		log:       c.Logger,
		requests:  make(chan request),
		stopped:   make(chan struct{}),
		files:     make(map[string]*file),
		delivered: make(map[mesh.Key]mesh.Object),
	}
	if s.maxBytes == 0 {
		s.maxBytes = defaultMaxFileBytes
	}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	s.status.Store(&mesh.SourceStatus{Since: time.Now(), Reason: "not started"})
	return s
}

// Name is "files".
func (s *Source) Name() string { return "files" }

// Status is the state as of the last listing, which is at most a second old
// while Run runs.
func (s *Source) Status() mesh.SourceStatus { return *s.status.Load() }

// Read reads the directory now, delivers what is new, and gives the service
// and its slices as they are then in force: of an invalid file, its last good
// objects. It waits for Run to be running, until ctx ends; it fails when the
// directory cannot be listed, and after Run has returned.
func (s *Source) Read(ctx context.Context, service mesh.Key) ([]mesh.Object, error) {
	r := request{service: service, reply: make(chan answer, 1)}
	select {
	case s.requests <- r:
	case <-s.stopped:
		return nil, fmt.Errorf("read %s: %w", service, errStopped)
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", service, ctx.Err())
	}
	select {
	case a := <-r.reply:
		return a.objects, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", service, ctx.Err())
	}
}

// Run delivers the directory into sink until ctx ends, and then gives nil. The
// error is for a directory that cannot be listed at the start.
func (s *Source) Run(ctx context.Context, sink mesh.Sink) error {
	defer close(s.stopped)
	s.sink = sink
	if _, err := os.ReadDir(s.dir); err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	events, failures := s.watch()
	if s.watcher != nil {
		defer func() { _ = s.watcher.Close() }()
	}
	s.rewatch()
	_ = s.list(time.Now(), true) // a failure is in Status
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
			s.note(e, time.Now())
		case err := <-failures:
			s.log.Warn("directory events lost", "dir", s.dir, "err", err)
			s.touch(time.Now(), nil)
		case <-wake.C:
			_ = s.list(time.Now(), false) // a failure is in Status
		case <-poll.C:
			s.rewatch()
			_ = s.list(time.Now(), false)
		case r := <-s.requests:
			r.reply <- s.answer(r.service)
		}
		if next := s.next(time.Now()); next > 0 {
			wake.Reset(next)
		}
	}
}

// watch starts the event watcher. Without one (the kernel's limits) the
// polling still finds every change, within a second.
func (s *Source) watch() (<-chan fsnotify.Event, <-chan error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.log.Warn("no directory events, polling only", "dir", s.dir, "err", err)
		return nil, nil
	}
	s.watcher = w
	return w.Events, w.Errors
}

// rewatch makes sure that the events are those of the directory that has the
// name now: another one may have taken its place.
func (s *Source) rewatch() {
	if s.watcher == nil {
		return
	}
	info, err := os.Stat(s.dir)
	if err != nil {
		s.watched = nil
		return
	}
	if s.watched != nil && os.SameFile(info, s.watched) && len(s.watcher.WatchList()) > 0 {
		return
	}
	_ = s.watcher.Remove(s.dir)
	if err := s.watcher.Add(s.dir); err != nil {
		s.log.Warn("no directory events, polling only", "dir", s.dir, "err", err)
		return
	}
	s.watched = info
}

// note takes an event.
func (s *Source) note(e fsnotify.Event, now time.Time) {
	if e.Op == fsnotify.Chmod {
		return
	}
	name := filepath.Base(e.Name)
	if isManifest(name) {
		s.touch(now, func(f *file) bool { return f.name == name })
		return
	}
	if strings.HasPrefix(name, "..") || filepath.Clean(e.Name) == filepath.Clean(s.dir) {
		s.touch(now, nil)
	}
}

// touch marks the chosen files, or all of them, as changed.
func (s *Source) touch(now time.Time, which func(*file) bool) {
	for _, f := range s.files {
		if which == nil || which(f) {
			f.dirty, f.touched = true, now
		}
	}
	if s.burst.IsZero() {
		s.burst = now
	}
	s.again = now.Add(min(quietTime, max(0, s.burst.Add(quietTimeMax).Sub(now))))
}

// next is how long to wait for the next listing; 0 for none asked for.
func (s *Source) next(now time.Time) time.Duration {
	if s.again.IsZero() {
		return 0
	}
	return max(s.again.Sub(now), time.Millisecond)
}
