package ack

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Stage is how far one resource has come on its way to a node.
type Stage uint8

// The stages.
const (
	// NotSent: the current form has not been sent.
	NotSent Stage = iota
	// Unanswered: it was sent, and neither acknowledged nor refused.
	Unanswered
	// Refused: it was refused.
	Refused
	// Held: it was acknowledged; where there is no such resource, its absence was.
	Held
)

// ResourceState is how one resource stands on a stream.
type ResourceState struct {
	Stage Stage
	// Held is the version that the node acknowledged last; "" for none.
	Held mesh.Version
	// Unknown: it has acknowledged none on this stream, and what it holds from before is not known.
	Unknown bool
	// RefusedAt and Message are of the refusal, for the stage Refused.
	RefusedAt time.Time
	Message   string
}

// Resource gives how a name of a tracked type stands; cur tells what is current.
func (s *Stream) Resource(t mesh.Type, name mesh.Name, cur Current) ResourceState {
	tr, now := s.types[t], cur.Version(t, name)
	e, lacks := tr.exceptions[name]
	switch {
	case !lacks && tr.unproven && tr.flight == nil:
		return ResourceState{Stage: NotSent, Unknown: true}
	case !lacks && tr.unproven:
		return ResourceState{Stage: Unanswered, Unknown: true}
	case !lacks:
		return ResourceState{Stage: Held, Held: now}
	}
	unknown := e.told && e.held == ""
	switch {
	case e.phase == refused && e.want == now:
		return ResourceState{Stage: Refused, Held: e.held, Unknown: unknown, RefusedAt: tr.nack.at, Message: tr.nack.message}
	case e.phase == sent && e.want == now:
		return ResourceState{Stage: Unanswered, Held: e.held, Unknown: unknown}
	}
	return ResourceState{Stage: NotSent, Held: e.held, Unknown: unknown}
}
