package discovery

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// maxTokens and tokenGap bound how often single unanswered names cost the
	// connection that serves all the others. A silent stream needs no token.
	maxTokens = 4
	tokenGap  = 10 * time.Second
	// maxQuiet bounds the gap between requests for a name that nobody answers, and
	// so how long it takes to notice that somebody does again: 20 s in all.
	maxQuiet = 15 * time.Second
	// maxPatience bounds the wait for the first word of a stream. With a back-off
	// after it, a stream that was given up in vain costs less than 20 s.
	maxPatience = 8 * time.Second
)

// Rungs of the watchdog, as the metric labels them.
const (
	rungResubscribe = "resubscribe"
	rungAnew        = "subscribe_anew"
	rungReconnect   = "reconnect"
	rungNextServer  = "next_server"
)

// Tick does what is due by time alone. It is to be called a few times a second.
func (c *core) Tick(now time.Time) {
	c.expire(now)
	c.lookUp(now)
	for _, s := range c.subs {
		if s.distrusted && now.Sub(s.distrustAt) >= distrustGap {
			c.distrust(now, s)
		}
	}
	if c.open && !c.watchSilence(now) && c.silentRung == 0 {
		c.watchAnswers(now)
	}
	c.flush()
}

// expire drops what nobody has used for long.
func (c *core) expire(now time.Time) {
	crowded := c.maxUnknown > 0 && c.unknown > c.maxUnknown/2
	for _, s := range c.subs {
		limit := c.idle
		if s.unknown {
			limit = min(limit, absentIdle)
			if crowded && c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: s.name}].absent {
				limit = min(limit, crowdedIdle)
			}
		}
		if !s.pinned && now.Sub(s.usedAt) >= limit {
			c.drop(s)
		}
	}
}

// watchSilence climbs the ladder of a stream on which nothing arrives, and tells
// whether it did something. A control plane that is healthy but has nothing to
// say answers the first rung, which asks for one resource of each type only.
func (c *core) watchSilence(now time.Time) bool {
	if len(c.entries) == 0 {
		c.heardAt = now
		return false
	}
	since, wait := c.heardAt, c.silence
	if c.silentRung > 0 {
		since, wait = c.rungAt, c.answer
	}
	if now.Sub(since) < wait {
		return false
	}
	c.silentRung++
	c.rungAt = now
	switch c.silentRung {
	case 1:
		c.climbed(rungResubscribe)
		c.probing = c.oldest()
		for _, e := range c.probing {
			c.ask(now, e)
		}
	case 2:
		c.climbed(rungAnew)
		for _, e := range c.probing {
			if c.entries[e.name] == e {
				c.askAnew(now, e)
			}
		}
	case 3:
		c.newConnection(rungReconnect, "nothing was received for "+now.Sub(c.heardAt).String())
	default:
		c.newConnection(rungNextServer, "nothing was received for "+now.Sub(c.heardAt).String())
	}
	return true
}

// oldest is the resource of each type that was vouched for longest ago. One that
// is awaited anyhow is the last choice: it may be a name that nobody answers for.
func (c *core) oldest() []*entry {
	found := map[mesh.Type]*entry{}
	for _, e := range c.entries {
		if o := found[e.name.Type]; o == nil || olderThan(e, o) {
			found[e.name.Type] = e
		}
	}
	var list []*entry
	for _, t := range usedTypes {
		if e := found[t]; e != nil {
			list = append(list, e)
		}
	}
	return list
}

func olderThan(a, b *entry) bool {
	switch {
	case a.askedAt.IsZero() != b.askedAt.IsZero():
		return a.askedAt.IsZero()
	case !a.confirmedAt.Equal(b.confirmedAt):
		return a.confirmedAt.Before(b.confirmedAt)
	default:
		return a.name.Name < b.name.Name
	}
}

// watchAnswers climbs for each resource whose answer is overdue, and asks again
// for each that has reached its age.
func (c *core) watchAnswers(now time.Time) {
	if now.Sub(c.tokenAt) >= tokenGap {
		c.tokens, c.tokenAt = min(c.tokens+1, maxTokens), now
	}
	escalate, because := "", ""
	for _, e := range c.entries {
		switch {
		case e.askedAt.IsZero():
			if !now.Before(e.dueAt) {
				e.rung = 1 // this is a re-subscribe already
				c.ask(now, e)
			}
		case now.Sub(e.askedAt) >= max(e.wait, c.patience()):
			if up := c.climb(now, e); up == rungNextServer || up != "" && escalate == "" {
				escalate, because = up, e.name.Type.Short()+" "+e.name.Name+" was asked for in vain"
			}
		}
	}
	if escalate == "" {
		return
	}
	if c.heardAny {
		c.tokens--
	}
	c.newConnection(escalate, because)
}

// patience is how long anything is waited for on this stream: on one that has
// brought nothing yet the longer, the more of them were given up in a row. The
// control plane may be busy, or far away, and every new stream begins its wait anew.
func (c *core) patience() time.Duration {
	if c.heardAny {
		return c.answer
	}
	return min(c.answer<<min(c.mute, 8), maxPatience)
}

// climb takes an overdue resource one rung up, and gives the rung when it is one
// for the whole connection. Past the ladder's end the name is asked for ever
// more rarely, and leaves the connection alone as long as others are answered
// on it: some control planes never answer for what does not exist.
func (c *core) climb(now time.Time, e *entry) string {
	e.askedAt = time.Time{}
	e.rung++
	switch {
	case e.rung == 1:
		c.climbed(rungResubscribe)
		c.ask(now, e)
	case e.rung == 2:
		c.climbed(rungAnew)
		c.askAnew(now, e)
	case e.rung > 4 && c.heardAny:
		e.wait = min(e.wait*2, maxQuiet)
		c.askAnew(now, e)
	case c.tokens <= 0 && c.heardAny:
		e.rung = 2
		c.askAnew(now, e)
	case e.rung == 3:
		e.askedAt = now
		return rungReconnect
	default:
		e.askedAt = now
		return rungNextServer
	}
	return ""
}

func (c *core) climbed(rung string) { c.out.rungs = append(c.out.rungs, rung) }

// newConnection gives up the stream and trusts nothing that was said on it.
func (c *core) newConnection(rung, because string) {
	c.climbed(rung)
	if !c.heardAny {
		c.mute++
	}
	c.offerNothing = true
	c.out.reconnect = because
	c.out.next = rung == rungNextServer
	c.Closed()
}

// Distrust asks again for a cluster and its endpoints and for a load report: at
// once, and for a cluster at most once in distrustGap.
func (c *core) Distrust(now time.Time, name string) {
	s := c.subs[name]
	if s == nil || c.disableRefresh {
		return
	}
	if s.distrusted = true; now.Sub(s.distrustAt) >= distrustGap {
		c.distrust(now, s)
	}
	c.flush()
}

func (c *core) distrust(now time.Time, s *sub) {
	s.distrusted, s.distrustAt = false, now
	for _, e := range c.parts(s) {
		e.rung = max(e.rung, 1)
		c.ask(now, e)
	}
	c.out.report = true
}

// parts are the resources of a cluster.
func (c *core) parts(s *sub) []*entry {
	list := []*entry{c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: s.name}]}
	for _, n := range s.services {
		list = append(list, c.entries[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: n}])
	}
	return list
}

// Reset forgets what is held for a cluster, or for all ("", on a new
// connection), and asks again. What is in force stays until the answer.
func (c *core) Reset(now time.Time, name string) {
	if name == "" {
		for _, e := range c.entries {
			e.forgotten, e.unoffered = true, true
		}
		c.offerNothing = true
		c.out.reconnect = "all was reset"
		c.Closed()
		return
	}
	s := c.subs[name]
	if s == nil {
		return
	}
	for _, e := range c.parts(s) {
		e.forgotten, e.unoffered = true, true
		c.askAnew(now, e)
	}
	c.flush()
}
