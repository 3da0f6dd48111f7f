package ack

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// deliveryLimit is how many responses a stream, and then its node, remembers.
	deliveryLimit = 32
	// deliveryNames is how many names are kept of one.
	deliveryNames = 8
)

// Delivery is one response that told a node something, and what came of it.
type Delivery struct {
	Type mesh.Type
	// Generation is that of the view that the response was made from.
	Generation mesh.Generation
	SentAt     time.Time
	// AnsweredAt is the zero time until there is an answer.
	AnsweredAt time.Time
	// Refused tells that the answer was a NACK, with this Message.
	Refused bool
	Message string
	// Count is how many names it carried; Names are all of them, sorted, or, where
	// they are more than 8, the first and the last.
	Count int
	Names []Carried
}

// Covers tells whether the response carried a name, as far as is known of it.
type Covers uint8

// The answers.
const (
	// Outside: it did not carry the name.
	Outside Covers = iota
	// Perhaps: it carried many names, and this one lies between the first and the last.
	Perhaps
	// Within: it carried the name.
	Within
)

// Carried tells whether the response carried the name, and in which version,
// "" for a removal; the version counts for Within only.
func (d *Delivery) Carried(t mesh.Type, name string) (mesh.Version, Covers) {
	if d.Type != t || d.Count == 0 {
		return "", Outside
	}
	for _, c := range d.Names {
		if c.Name.Value() == name {
			return c.Version, Within
		}
	}
	if d.Count > len(d.Names) && d.Names[0].Name.Value() < name && name < d.Names[len(d.Names)-1].Name.Value() {
		return "", Perhaps
	}
	return "", Outside
}

// Deliveries are the newest responses of a stream that told its node something,
// oldest first; probes are none. The zero value is empty. It takes 128 bytes and
// 24 for each name kept, a response.
type Deliveries struct {
	list []Delivery
	// gone is when the newest one was sent that is no longer kept.
	gone time.Time
}

// Sent adds a response; carried is not kept.
func (d *Deliveries) Sent(t mesh.Type, g mesh.Generation, at time.Time, carried []Carried) {
	if len(carried) == 0 {
		return
	}
	n := Delivery{Type: t, Generation: g, SentAt: at, Count: len(carried)}
	if len(carried) <= deliveryNames {
		n.Names = slices.SortedFunc(slices.Values(carried), compareCarried)
	} else {
		n.Names = []Carried{slices.MinFunc(carried, compareCarried), slices.MaxFunc(carried, compareCarried)}
	}
	d.add(n)
}

func compareCarried(a, b Carried) int { return strings.Compare(a.Name.Value(), b.Name.Value()) }

func (d *Deliveries) add(n Delivery) {
	if len(d.list) == deliveryLimit {
		d.gone = latest(d.gone, d.list[0].SentAt)
		copy(d.list, d.list[1:])
		d.list[deliveryLimit-1] = n
		return
	}
	d.list = append(d.list, n)
}

// Answered notes the answer to the last response of a type; nothing where that
// was a probe or is answered.
func (d *Deliveries) Answered(t mesh.Type, sentAt, at time.Time, refused bool, message string) {
	for i := len(d.list) - 1; i >= 0; i-- {
		n := &d.list[i]
		if n.Type != t {
			continue
		}
		if n.AnsweredAt.IsZero() && n.SentAt.Equal(sentAt) {
			n.AnsweredAt, n.Refused, n.Message = at, refused, message
		}
		return
	}
}

// All gives them, oldest first, and when the newest one was sent that is no
// longer among them; zero when none is missing.
func (d *Deliveries) All() ([]Delivery, time.Time) { return slices.Clone(d.list), d.gone }

// Join gives the newest deliveries of both, as those of one node.
func (d *Deliveries) Join(o *Deliveries) *Deliveries {
	list := slices.Concat(d.list, o.list)
	slices.SortStableFunc(list, func(a, b Delivery) int { return a.SentAt.Compare(b.SentAt) })
	out := &Deliveries{gone: latest(d.gone, o.gone)}
	if over := len(list) - deliveryLimit; over > 0 {
		out.gone = latest(out.gone, list[over-1].SentAt)
		list = list[over:]
	}
	out.list = slices.Clone(list)
	return out
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
