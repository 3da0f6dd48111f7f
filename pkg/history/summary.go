package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Stamp writes a time as the story has it: RFC 3339 in UTC, to the millisecond.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func generation(g mesh.Generation) string { return fmt.Sprintf("generation %d", g) }

// summary says the most important of a story.
func summary(s *Story) string {
	switch s.Verdict {
	case NodeUnknown:
		return fmt.Sprintf("%s has no stream at this server, and had none within the last 10 minutes. Another replica may have it.", s.Node)
	case ClusterUnknown:
		if len(s.Candidates) > 0 {
			return fmt.Sprintf("%q may stand for several clusters: %s.", s.Cluster, strings.Join(s.Candidates, ", "))
		}
		return fmt.Sprintf("There is no cluster %s, and there was none since %s.", s.Cluster, s.since())
	case Disconnected:
		return s.endpointSays() + s.gone()
	case NotSubscribed:
		return fmt.Sprintf("%s%s does not subscribe to %s: it is not sent to it, and the node holds none of it from here.", s.endpointSays(), s.Node, s.Cluster)
	case Rejected, Behind, Unconfirmed, Current:
	}
	return s.endpointSays() + s.nodeSays()
}

func (s *Story) since() string {
	if s.Server.LogComplete {
		return "this server's start at " + Stamp(s.Server.LogSince)
	}
	return Stamp(s.Server.LogSince) + ", where the log begins"
}

func (s *Story) gone() string {
	text := fmt.Sprintf("%s has no stream here", s.Node)
	if s.State.Streams > 0 {
		text = fmt.Sprintf("%s has lost a stream here", s.Node)
	}
	if at := s.State.DisconnectedAt; at != nil {
		text += " since " + Stamp(*at)
	}
	if at := s.State.PodGoneAt; at != nil && s.State.Streams == 0 {
		return text + ", and its pod is gone since " + Stamp(*at) + ", as Kubernetes has it: what it held counts no more."
	}
	return text + ": what it holds now is not known."
}

// endpointSays tells what became of the endpoint in the cluster; "" when none was asked for.
func (s *Story) endpointSays() string {
	if s.Endpoint == "" {
		return ""
	}
	last, known := s.lastOf(s.Endpoint)
	switch {
	case known && last.Now == "":
		return fmt.Sprintf("%s was removed at %s by %s. ", s.Endpoint, Stamp(last.at), last.event)
	case known && last.Was == "":
		return fmt.Sprintf("%s was added as %s at %s by %s. ", s.Endpoint, last.Now, Stamp(last.at), last.event)
	case known:
		return fmt.Sprintf("%s is %s since %s by %s. ", s.Endpoint, last.Now, Stamp(last.at), last.event)
	case s.EndpointNow != Absent:
		return fmt.Sprintf("%s is %s, unchanged since before %s. ", s.Endpoint, s.EndpointNow, s.since())
	}
	return fmt.Sprintf("%s is not in the cluster, and was not since %s: it was never there, or that is older than the log. ", s.Endpoint, s.since())
}

type lastChange struct {
	EndpointChange
	at    time.Time
	event string
}

func (s *Story) lastOf(endpoint string) (lastChange, bool) {
	for _, c := range slices.Backward(s.Changes) {
		for _, e := range c.Endpoints {
			if e.Endpoint == endpoint {
				return lastChange{e, c.PublishedAt, c.event()}, true
			}
		}
	}
	return lastChange{}, false
}

// event is "EndpointSlice default/echo-1 at resource version 17".
func (c *Change) event() string {
	if c.ResourceVersion == "" {
		return c.Object
	}
	return c.Object + " at resource version " + c.ResourceVersion
}

// nodeSays tells how the node stands.
func (s *Story) nodeSays() string {
	worst := s.worst()
	switch s.Verdict {
	case Rejected:
		return fmt.Sprintf("%s refused the current %s: %s", s.Node, worst.Type, worst.Message)
	case Behind:
		text := fmt.Sprintf("%s is behind: it acknowledged %s of %s, current is %s", s.Node, version(worst.Held), worst.Type, version(worst.Current))
		if worst.Stage == stageUnanswered {
			text += ", which was sent and not answered: it may hold either"
		} else {
			text += ", which was not sent yet"
		}
		if worst.EndpointHeld != "" {
			text += fmt.Sprintf(". In the form acknowledged the endpoint is %s", worst.EndpointHeld)
		}
		return text + "."
	case Unconfirmed:
		return fmt.Sprintf("%s acknowledged the current form, but has not answered since %s.", s.Node, confirmed(s.State.ConfirmedAt))
	case Current, NodeUnknown, ClusterUnknown, Disconnected, NotSubscribed:
	}
	for _, c := range slices.Backward(s.Changes) {
		if c.Sent != nil && c.Sent.AckedAt != nil {
			return fmt.Sprintf("%s knows: it holds the current form, and acknowledged %s at %s.", s.Node, generation(c.Sent.Generation), Stamp(*c.Sent.AckedAt))
		}
	}
	return fmt.Sprintf("%s holds the current form.", s.Node)
}

// worst is the hold that decides the verdict.
func (s *Story) worst() Hold {
	for _, stage := range []string{stageRefused, stageNotSent, stageUnanswered} {
		for _, h := range s.Holds {
			if h.Stage == stage {
				return h
			}
		}
	}
	return Hold{}
}

func version(v mesh.Version) string {
	if v == "" {
		return "nothing"
	}
	return string(v)
}

func confirmed(at *time.Time) string {
	if at == nil {
		return "it connected"
	}
	return Stamp(*at)
}
