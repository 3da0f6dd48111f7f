package controlplane

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
)

// sources are what the control plane serves from: the source of objects, and a
// directory of static resources, if there is one.
type sources struct {
	objects mesh.Source
	files   *static.Source
}

// sourcesStatus is how all sources are doing together.
type sourcesStatus struct {
	// connected is false while any cannot be reached.
	connected bool
	lag       time.Duration
	// reason joins what is wrong with "; ".
	reason   string
	problems []mesh.Problem
	parts    []ack.SourceState
}

// status asks all sources; it never blocks.
func (s sources) status(now time.Time) sourcesStatus {
	objects := s.objects.Status()
	if s.objects.Name() == "files" {
		objects.Feeds = directoryFeed("manifests", objects)
	}
	all := sourcesStatus{connected: objects.Connected, reason: objects.Reason, problems: slices.Clone(objects.Problems)}
	all.add(objects, now)
	if s.files != nil {
		files := s.files.Status()
		files.Feeds = directoryFeed("static resources", files)
		all.connected = all.connected && files.Connected
		if files.Reason != "" {
			all.because("static resources: " + files.Reason)
		}
		all.problems = append(all.problems, files.Problems...)
		all.add(files, now)
	}
	return all
}

// directoryFeed is a directory as the one feed of its source.
func directoryFeed(name string, s mesh.SourceStatus) []mesh.Feed {
	f := mesh.Feed{Name: name, Synced: s.Synced, CheckedAt: s.LastSeenAt, Reason: s.Reason}
	if !s.Connected {
		f.BehindSince = s.Since
	}
	return []mesh.Feed{f}
}

// add takes in the lag and the parts of one source.
func (a *sourcesStatus) add(s mesh.SourceStatus, now time.Time) {
	if !s.Connected && !s.Since.IsZero() {
		a.lag = max(a.lag, now.Sub(s.Since))
	}
	for _, f := range s.Feeds {
		part := ack.SourceState{
			Kind: f.Name, Synced: f.Synced, ResourceVersion: f.ResourceVersion, CheckedAt: f.CheckedAt,
			Reason: f.Reason, Relists: f.Relists,
		}
		if f.Relists > 0 {
			part.LastRelist = &ack.Relist{At: f.RelistedAt, Reason: f.RelistReason}
		}
		if !f.BehindSince.IsZero() {
			lag := max(now.Sub(f.BehindSince), 0)
			part.LagSeconds, a.lag = lag.Seconds(), max(a.lag, lag)
			a.because(f.Reason)
		}
		a.parts = append(a.parts, part)
	}
}

// because adds a reason that is not there yet, also not as a part of another one.
func (a *sourcesStatus) because(reason string) {
	switch {
	case reason == "" || strings.Contains(a.reason, reason):
	case a.reason == "":
		a.reason = reason
	default:
		a.reason += "; " + reason
	}
}
