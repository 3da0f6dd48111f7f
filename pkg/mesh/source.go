package mesh

import (
	"context"
	"time"
)

// Source delivers Kubernetes objects: a watched directory, or a cluster.
type Source interface {
	// Name is "files" or "kubernetes".
	Name() string
	// Run delivers into sink until ctx ends, and then gives nil. It returns an
	// error only for what no waiting can cure (a directory that does not
	// exist at the start); a source that is away for a while is in Status.
	Run(ctx context.Context, sink Sink) error
	// Status is the source's own view of itself, at any time, from any goroutine.
	Status() SourceStatus
	// Read reads one service and its slices live, past every cache. The
	// result is complete: what is not in it does not exist. The error wraps
	// ctx's when the deadline passed.
	Read(ctx context.Context, service Key) ([]Object, error)
}

// Sink takes what a Source delivers. None of its methods ever blocks, and all
// may be called from any goroutine; for one key the last call counts.
type Sink interface {
	// Put says that the object exists, in this form.
	Put(Object)
	// Delete says that the object no longer exists. meta needs its Key; its
	// UID and ResourceVersion, where known, keep a late deletion from
	// removing a newer object of the same name.
	Delete(meta Meta)
	// Synced says that everything that existed at the start has been Put. Calling it again is harmless.
	Synced()
}

// BatchSink is a Sink that takes what belongs together as one change.
type BatchSink interface {
	Sink
	// Batch calls fill, and takes what that puts and deletes all at once:
	// nothing is made of some of it without the rest.
	Batch(fill func(Sink))
}

// Batch gives fill's changes to a sink together where it can take them so, and one by one elsewhere.
func Batch(s Sink, fill func(Sink)) {
	if b, ok := s.(BatchSink); ok {
		b.Batch(fill)
		return
	}
	fill(s)
}

// SourceStatus is how a source is doing.
type SourceStatus struct {
	// Synced is true once the first full listing has been delivered; it never
	// goes back: what was known stays known.
	Synced bool
	// Connected is false while the source cannot be reached. A directory counts as reached while it can be listed.
	Connected bool
	// Since is when Connected or Synced last changed.
	Since time.Time
	// Reason says in one line why Synced or Connected is false; "" when both are true.
	Reason string
	// LastSeenAt is the last time that the source was heard (an event, a listing, a bookmark); zero for never.
	LastSeenAt time.Time
	// Problems are the source's own: unreadable files, objects that do not
	// convert. Sorted by object and field; the slice is never changed later.
	Problems []Problem
	// Feeds are its parts: the kinds of a cluster; nil for a directory.
	Feeds []Feed
}

// Feed is how one part of a source is doing.
type Feed struct {
	// Name is what it brings, in the plural: "endpointslices".
	Name   string
	Synced bool
	// ResourceVersion is that up to which everything was delivered; "" for a directory.
	ResourceVersion string
	// CheckedAt is when it was last proven to hold what the source holds; zero for never.
	CheckedAt time.Time
	// BehindSince is since when what it holds may be older than the truth; zero while nothing says so.
	BehindSince time.Time
	// Reason says in one line what is wrong; "" when nothing is.
	Reason string
	// Relists counts how often it was listed anew because it could not be
	// trusted; RelistReason and RelistedAt are those of the last time.
	Relists      uint64
	RelistReason string
	RelistedAt   time.Time
}
