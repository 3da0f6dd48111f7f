package history

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxChanges bounds the changes of a Story.
const maxChanges = 100

// Tell tells the story.
func Tell(f Facts) Story {
	s := Story{
		Server: Server{
			Instance: f.Instance, Generation: f.Generation,
			LogAfter: f.Floor.Generation, LogSince: f.Floor.At, LogComplete: f.Floor.Start, SentSince: timeOrNil(f.Gone),
		},
		Time: f.Time, Node: f.Node, Cluster: f.Cluster, Endpoint: f.Endpoint, Candidates: f.Candidates,
		Holds: []Hold{}, Changes: []Change{},
	}
	if f.Known {
		n := f.State
		s.State = &NodeState{
			Client: n.Client, Address: n.Address, State: n.State, Reason: n.Reason, Active: n.Active, Streams: n.Streams,
			Resets: n.Resets, ConnectedAt: n.ConnectedAt, ConfirmedAt: n.ConfirmedAt, DisconnectedAt: n.DisconnectedAt, PodGoneAt: n.PodGoneAt,
		}
	}
	if f.Endpoint != "" && len(f.Candidates) == 0 {
		s.EndpointNow = presence(endpoints(f.Assignment)[f.Endpoint])
	}
	for i := range f.Held {
		s.Holds = append(s.Holds, f.hold(&f.Held[i]))
	}
	for i := range f.Entries {
		if c, ok := f.change(i); ok {
			s.Changes = append(s.Changes, c)
		}
	}
	if s.Earlier = max(len(s.Changes)-maxChanges, 0); s.Earlier > 0 {
		s.Changes = s.Changes[s.Earlier:]
	}
	s.Verdict = f.verdict(s.Holds)
	s.Summary = summary(&s)
	return s
}

func (f *Facts) verdict(holds []Hold) Verdict {
	stage := func(want string) bool {
		return slices.ContainsFunc(holds, func(h Hold) bool { return h.Stage == want })
	}
	switch {
	case !f.Known:
		return NodeUnknown
	case !f.Exists && len(f.Entries) == 0 && len(f.Held) == 0:
		return ClusterUnknown
	case f.State.State == ack.Disconnected && len(holds) == 0:
		return Disconnected
	case len(holds) == 0:
		return NotSubscribed
	case stage(stageRefused):
		return Rejected
	case stage(stageUnanswered) || stage(stageNotSent):
		return Behind
	case f.silent():
		return Unconfirmed
	case f.State.State == ack.Disconnected:
		return Disconnected // by a stream that it lost; of the others it holds the current form
	}
	return Current
}

// silent tells that a type which lacks nothing is stale: its node has not answered for too long.
func (f *Facts) silent() bool {
	return slices.ContainsFunc(f.State.Types, func(t ack.TypeState) bool { return t.State == ack.Stale && t.Behind == 0 })
}

// The stages as words.
const (
	stageHeld       = "held"
	stageUnanswered = "unanswered"
	stageRefused    = "refused"
	stageNotSent    = "not-sent"
)

func stageWord(s ack.Stage) string {
	switch s {
	case ack.Held:
		return stageHeld
	case ack.Unanswered:
		return stageUnanswered
	case ack.Refused:
		return stageRefused
	case ack.NotSent:
	}
	return stageNotSent
}

func (f *Facts) hold(h *Held) Hold {
	out := Hold{
		Type: h.Type.Short(), Stage: stageWord(h.Stage), Held: h.Held, Current: h.Current,
		Message: h.Message, StreamSince: h.ConnectedAt,
	}
	if h.Type != mesh.TypeEndpoint {
		return out
	}
	all := endpoints(h.Body)
	out.Endpoints = len(all)
	if f.Endpoint != "" {
		out.EndpointCurrent = presence(all[f.Endpoint])
		out.EndpointHeld = f.presenceHeld(h, out.EndpointCurrent)
	}
	return out
}

func presence(health string) Presence {
	if health == "" {
		return Absent
	}
	return Presence(health)
}

// presenceHeld goes back from the current form through the log to the one that
// the node holds: that form itself is not kept.
func (f *Facts) presenceHeld(h *Held, current Presence) Presence {
	switch {
	case h.Stage == ack.Held:
		return current
	case h.Unknown:
		return Unknown
	case h.Held == "":
		return Absent
	}
	held, ok := f.generationOf(h.ResourceName, h.Held)
	if !ok || f.Floor.Generation > held {
		return Unknown
	}
	for _, e := range slices.Backward(f.Entries) {
		if e.Resource != h.ResourceName || e.Generation <= held {
			continue
		}
		if c, ok := e.endpoint(f.Endpoint); ok {
			current = presence(c.Was)
		} else if e.More > 0 {
			return Unknown
		}
	}
	return current
}

// generationOf gives a generation in which a resource had a version.
func (f *Facts) generationOf(name mesh.ResourceName, v mesh.Version) (mesh.Generation, bool) {
	for _, d := range slices.Backward(f.Deliveries) {
		if sent, covers := d.Carried(name.Type, name.Name); covers == ack.Within && sent == v {
			return d.Generation, true
		}
	}
	for _, e := range slices.Backward(f.Entries) {
		if e.Resource == name && e.Version == v {
			return e.Generation, true
		}
	}
	return 0, false
}

func (e *Entry) endpoint(endpoint string) (EndpointChange, bool) {
	for _, c := range e.Endpoints {
		if c.Endpoint == endpoint {
			return c, true
		}
	}
	return EndpointChange{}, false
}

// change tells of an entry; false where it has nothing to do with what was asked.
func (f *Facts) change(i int) (Change, bool) {
	e := &f.Entries[i]
	c := Change{
		Generation: e.Generation, Type: e.Resource.Type.Short(), What: e.What, Version: e.Version,
		Endpoints: e.Endpoints, MoreEndpoints: e.More,
		Object: e.Cause.Object.String(), ResourceVersion: e.Cause.ResourceVersion, ChangedBy: e.Cause.ChangedBy,
		ChangedAt: timeOrNil(e.Cause.ChangedAt), ReceivedAt: timeOrNil(e.Cause.ReceivedAt), PublishedAt: e.PublishedAt,
	}
	if f.Endpoint != "" {
		one, ok := e.endpoint(f.Endpoint)
		switch {
		case ok:
			c.Endpoints, c.MoreEndpoints = []EndpointChange{one}, 0
		case e.More == 0 && (e.Resource.Type == mesh.TypeEndpoint || e.What == Changed):
			return Change{}, false
		default:
			c.Endpoints = nil
		}
	}
	if f.Known {
		c.Sent, c.Note = f.sent(i)
	}
	return c, true
}

// sent finds the response by which the node got an entry, or why none is known.
func (f *Facts) sent(i int) (*Sent, string) {
	e := &f.Entries[i]
	next := f.after(i)
	var found *Sent
	for _, d := range f.Deliveries {
		version, covers := d.Carried(e.Resource.Type, e.Resource.Name)
		if covers == ack.Outside || d.Generation < e.Generation || next != nil && d.Generation >= next.Generation {
			continue
		}
		if found != nil && (found.AckedAt != nil || d.AnsweredAt.IsZero()) {
			continue
		}
		found = &Sent{
			At: d.SentAt, Generation: d.Generation, Version: version, Resources: d.Count, Sure: covers == ack.Within, Message: d.Message,
		}
		if d.Refused {
			found.RefusedAt = timeOrNil(d.AnsweredAt)
		} else {
			found.AckedAt = timeOrNil(d.AnsweredAt)
		}
	}
	if found != nil {
		return found, ""
	}
	return nil, f.whyNot(e, next)
}

// after gives the next change of the same resource, or nil.
func (f *Facts) after(i int) *Entry {
	for j := i + 1; j < len(f.Entries); j++ {
		if f.Entries[j].Resource == f.Entries[i].Resource {
			return &f.Entries[j]
		}
	}
	return nil
}

// whyNot says why no response is known by which the node got an entry.
func (f *Facts) whyNot(e, next *Entry) string {
	subscribed, held := false, false
	connected := time.Time{}
	for _, h := range f.Held {
		if h.ResourceName == e.Resource {
			subscribed = true
			held = held || h.Stage == ack.Held
			if connected.IsZero() || h.ConnectedAt.Before(connected) {
				connected = h.ConnectedAt
			}
		}
	}
	switch {
	case !f.Gone.IsZero() && !f.Gone.Before(e.PublishedAt):
		return "older than what is remembered of this node: its last responses, since " + Stamp(f.Gone)
	case !subscribed:
		return "the node does not subscribe to it"
	case connected.After(e.PublishedAt) && next == nil && held:
		return "not sent: the node had this form already when it connected at " + Stamp(connected)
	case connected.After(e.PublishedAt):
		return "not sent: the node connected later, at " + Stamp(connected)
	case next != nil:
		return "not sent by itself: overtaken by " + generation(next.Generation)
	case held:
		return "not sent again: the node holds this form"
	}
	return "not sent yet"
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
