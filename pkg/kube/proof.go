package kube

import (
	"cmp"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// What health knows of how far each kind can be trusted.

// checkable tells whether there is something to compare with live reads: not
// before the first listing, nor while another one is under way.
func (h *health) checkable(kind mesh.Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.kinds[kind]
	return k.listed && k.doubt == "" && !k.refused
}

// failures counts the kind's failed list and watch requests, and the watches that were cut off.
func (h *health) failures(kind mesh.Kind) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kinds[kind].failures
}

// watchedSince gives since when the kind's watch is there; false while its requests fail.
func (h *health) watchedSince(kind mesh.Kind) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.kinds[kind]
	return k.watchedAt, k.list == "" && k.watch == ""
}

// interrupted notes a watch that ended before its time, which is no fault by itself.
func (h *health) interrupted(kind mesh.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kinds[kind].failures++
}

// checked notes a live read that agrees with what is held at a time; the zero
// time where it could not be compared.
func (h *health) checked(kind mesh.Kind, at time.Time) {
	h.change(func(now time.Time) {
		k := h.kinds[kind]
		h.serves(now)
		h.recollect = h.recollect || k.checkRefused
		k.check, k.checkRefused = "", false
		if !at.IsZero() {
			k.feed.CheckedAt = at
		}
	})
}

// checkFailed notes a live read that failed; what is held stays.
func (h *health) checkFailed(kind mesh.Kind, err error, began time.Time) {
	h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.check, k.checkRefused = h.blame(err, "list "+k.plural, began, now), refused(err)
		h.recollect = h.recollect || k.checkRefused
	})
}

// doubted notes that the kind is to be listed anew.
func (h *health) doubted(kind mesh.Kind, reason relistReason, detail string) {
	h.change(func(now time.Time) {
		k := h.kinds[kind]
		k.feed.Relists++
		k.feed.RelistReason, k.feed.RelistedAt = string(reason), now
		if k.listed && reason != noAnswer {
			k.doubt = k.plural + " are listed anew (" + string(reason) + "): " + detail
		}
	})
}

// shown is the kind as a feed; with health's mu.
func (k *kindHealth) shown() mesh.Feed {
	f := k.feed
	f.Synced, f.ResourceVersion, f.Reason = k.listed, k.held.mark(), k.failure()
	if !k.listed {
		f.Reason = cmp.Or(f.Reason, "its first list is not answered yet")
	}
	if k.refused && !k.required {
		f.BehindSince = time.Time{} // nothing is expected of it
	}
	return f
}

// keepTime keeps BehindSince: a kind that is being listed anew may have been behind
// since it was last found right.
func (k *kindHealth) keepTime(now time.Time) {
	since := &k.feed.BehindSince
	switch {
	case k.listed && k.failure() == "":
		*since = time.Time{}
	case !since.IsZero():
	case k.doubt != "" && !k.feed.CheckedAt.IsZero():
		*since = k.feed.CheckedAt
	default:
		*since = now
	}
}
