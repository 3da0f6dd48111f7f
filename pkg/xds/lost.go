package xds

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxLost bounds the lost streams that are remembered of one node; the oldest go first.
const maxLost = 100

// lost is a stream that ended because its client was silent, of a node that has
// others: what the client got on it is in use still, and nobody tells it of a
// change, until another stream takes its place.
type lost struct {
	kind streamKind
	// at is when it ended, heard when its client last answered, or opened it; why is the reason.
	at, heard time.Time
	why       string
	types     []ack.TypeState
}

// streamKind is what two streams have in common of which one can take the place of the other.
type streamKind struct {
	delta bool
	only  mesh.Type
}

func (sn *session) kind() streamKind { return streamKind{delta: sn.delta, only: sn.only} }

// lostBy gives the stream as a lost one; nil where its client left in order, or
// asked for nothing. A client that closes a stream and one whose connection broke look
// the same from here, so the end of a stream is a loss where an answer was overdue.
func (sn *session) lostBy(why string, reset bool, err error, last ack.Node, now time.Time) *lost {
	acks := sn.core.Acks()
	silent := false
	for _, t := range acks.Types() {
		since, _, waits := acks.Type(t).InFlight()
		silent = silent || waits && now.Sub(since) > acks.Policy.AckTimeout/4
	}
	types := slices.DeleteFunc(slices.Clone(last.Types), func(t ack.TypeState) bool { return t.Subscribed == 0 && !t.Wildcard })
	if !reset && (err == nil || !silent) || len(types) == 0 {
		return nil
	}
	heard := acks.ConfirmedAt
	if heard.IsZero() {
		heard = acks.ConnectedAt
	}
	return &lost{kind: sn.kind(), at: now, heard: heard, why: why, types: types}
}

// lose remembers a lost stream, unless one is open that came since its client last
// answered, and takes no other's place. Guarded by register.mu.
func (rec *record) lose(l *lost) {
	if l == nil {
		return
	}
	for _, sn := range rec.sessions {
		if sn.kind() == l.kind && !sn.replaces && !sn.connected.Before(l.heard) {
			sn.replaces = true
			return
		}
	}
	rec.lost = append(rec.lost, l)
	rec.lost = slices.Clone(rec.lost[max(0, len(rec.lost)-maxLost):])
}

// found lets a new stream take the place of the oldest lost one of its kind. Guarded by register.mu.
func (rec *record) found(sn *session) {
	i := slices.IndexFunc(rec.lost, func(l *lost) bool { return l.kind == sn.kind() })
	if i >= 0 {
		sn.replaces = true
		rec.lost = slices.Delete(rec.lost, i, i+1)
	}
}

// missing adds to a node that has streams what it lost and was not found again: what
// it has on the others may be fresh, but not all that it has is known. It may have
// gone on at another replica, so that is no more than disconnected. What ended after
// now, when the streams were asked, does not count. Guarded by register.mu.
func (rec *record) missing(n *ack.Node, now time.Time) {
	rec.lost = slices.DeleteFunc(rec.lost, func(l *lost) bool { return now.Sub(l.at) > keepDisconnected })
	for _, l := range rec.lost {
		if !l.at.Before(now) {
			continue // it was there to be asked, or has answered
		}
		reason := "stream lost " + now.Sub(l.at).Round(100*time.Millisecond).String() + " ago (" + l.why + "), and none took its place here"
		for _, t := range l.types {
			t.State, t.Reason, t.StaleForSeconds = ack.Disconnected, reason, 0
			n.Types = append(n.Types, t)
		}
		if n.State == ack.Fresh {
			n.State, n.Reason, n.DisconnectedAt = ack.Disconnected, l.types[0].Type+": "+reason, &l.at
		}
	}
}
