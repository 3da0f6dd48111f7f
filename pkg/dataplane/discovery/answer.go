package discovery

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxNackText bounds a NACK's text: it travels in one message and ends in somebody's log.
const maxNackText = 4096

// Response takes a message of the stream: everything in it is applied before
// the acknowledgement is queued (xDS protocol, "ACK and NACK semantics"). An
// empty response with a new nonce is a probe, and is acknowledged like any other.
// It tells whether the message was good: of a type that was asked for, and nothing in it refused.
func (c *core) Response(now time.Time, r *discoveryv3.DeltaDiscoveryResponse) (good bool) {
	c.heardAt, c.heardAny, c.silentRung, c.mute = now, true, 0, 0
	t := mesh.Type(r.GetTypeUrl())
	if !c.asked[t] {
		return false
	}
	var bad []string
	for _, res := range r.GetResources() {
		if err := c.put(now, t, res); err != nil {
			bad = append(bad, c.reject(mesh.ResourceName{Type: t, Name: res.GetName()}, res.GetVersion(), err))
		}
	}
	for _, name := range r.GetRemovedResources() {
		if err := c.remove(now, mesh.ResourceName{Type: t, Name: name}); err != nil {
			bad = append(bad, c.reject(mesh.ResourceName{Type: t, Name: name}, "", err))
		}
	}
	c.acknowledge(t, r.GetNonce(), bad)
	c.flush()
	return len(bad) == 0
}

func (c *core) reject(name mesh.ResourceName, version string, err error) string {
	c.out.rejected = append(c.out.rejected, rejection{name: name, version: version, text: err.Error()})
	return fmt.Sprintf("%s: %v", name.Name, err)
}

func (c *core) acknowledge(t mesh.Type, nonce string, bad []string) {
	r := c.request(t)
	r.ResponseNonce = nonce
	if len(bad) == 0 {
		return
	}
	text := strings.Join(bad, "; ")
	if len(text) > maxNackText {
		text = text[:maxNackText] + "…"
	}
	r.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(text, "?")}
}

// put takes one resource. An error is for the NACK; then the old form stays.
func (c *core) put(now time.Time, t mesh.Type, res *discoveryv3.Resource) error {
	e := c.entries[mesh.ResourceName{Type: t, Name: res.GetName()}]
	if e == nil {
		return nil // unsubscribed while this was on its way
	}
	if res.GetResource() == nil {
		return c.heartbeat(now, e, res)
	}
	c.answered(now, e)
	if e.known && !e.absent && !e.forgotten && same(e.resource, res) {
		e.confirm(now)
		return c.bringAllInForce(now, e)
	}
	content, err := decode(t, res.GetName(), res.GetResource())
	if err != nil {
		return c.refuse(e, err)
	}
	c.seq++
	return c.hold(now, e, held{known: true, content: content, resource: res, seq: c.seq})
}

// hold puts a new form in place, or on a refusal leaves everything as it was.
func (c *core) hold(now time.Time, e *entry, h held) error {
	old := *e
	e.held, e.forgotten = h, false
	e.confirm(now)
	err := c.bringAllInForce(now, e)
	if err == nil {
		return nil
	}
	*e = old
	_ = c.bringAllInForce(now, e) // the users that took the new form go back
	return c.refuse(e, err)
}

func same(a, b *discoveryv3.Resource) bool {
	return a.GetVersion() == b.GetVersion() && bytes.Equal(a.GetResource().GetValue(), b.GetResource().GetValue())
}

// heartbeat is a resource without a body: it vouches for the version held (xDS protocol, "TTL").
func (c *core) heartbeat(now time.Time, e *entry, res *discoveryv3.Resource) error {
	if !e.known || e.absent || e.resource.GetVersion() != res.GetVersion() {
		return fmt.Errorf("no body, and version %q is not held", res.GetVersion())
	}
	c.answered(now, e)
	e.confirm(now)
	return c.bringAllInForce(now, e)
}

// remove takes the answer that there is no such resource.
func (c *core) remove(now time.Time, name mesh.ResourceName) error {
	e := c.entries[name]
	if e == nil {
		return nil
	}
	c.answered(now, e)
	if e.absent {
		e.confirm(now)
		return nil
	}
	c.seq++
	return c.hold(now, e, held{known: true, absent: true, seq: c.seq})
}

// answered ends the wait for a resource, whatever the answer was.
func (c *core) answered(now time.Time, e *entry) {
	e.askedAt, e.rung, e.wait = time.Time{}, 0, c.answer
	c.schedule(now, e)
}

func (e *entry) confirm(now time.Time) {
	e.confirmedAt, e.fromDisk, e.unoffered, e.refusal = now, false, false, ""
}

// refuse notes why, so that callers without a cluster are told.
func (c *core) refuse(e *entry, err error) error {
	e.refusal = err.Error()
	for _, s := range e.users {
		c.publish(s)
	}
	return err
}

// bringAllInForce is bringInForce for every user of a resource, in order of name; the first refusal stops it.
func (c *core) bringAllInForce(now time.Time, e *entry) error {
	for _, n := range sortedKeys(e.users) {
		s := e.users[n]
		if s == nil {
			continue // that of another one ended this use
		}
		if err := c.bringInForce(now, s); err != nil {
			return err
		}
	}
	return nil
}

// bringInForce brings what is in force for a cluster in line with what is held. As
// long as a part is missing the old form stays in force: make before break.
func (c *core) bringInForce(now time.Time, s *sub) error {
	cds := c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: s.name}]
	defer c.publish(s)
	switch {
	case !cds.known:
		return nil
	case cds.absent:
		c.takeOut(s)
		return nil
	}
	part := cds.content.cluster
	eds := c.assignment(now, s, part)
	if part.eds != "" && !eds.known {
		return nil
	}
	endpoints, hostSeq, ready := c.endpoints(s, part, eds)
	if !ready {
		return nil
	}
	next := compose(part, cds, eds, endpoints)
	forms := [2]uint64{cds.seq}
	if eds != nil {
		forms[1] = eds.seq
	}
	if s.inForce == nil || forms != s.applied || hostSeq != s.hostSeq || next.FromDisk != s.inForce.FromDisk {
		if err := c.applier.Apply(next); err != nil {
			return err
		}
		c.out.save = true
	}
	s.inForce, s.applied, s.hostSeq = next, forms, hostSeq
	s.kept = kept(cds, eds)
	c.keepOnly(s, part.eds)
	return nil
}

// assignment is the entry of the endpoints that a cluster names, subscribed if need be; nil for a cluster without one.
func (c *core) assignment(now time.Time, s *sub, part *clusterPart) *entry {
	if part.eds == "" {
		return nil
	}
	if !slices.Contains(s.services, part.eds) {
		s.services = append(s.services, part.eds)
	}
	return c.retain(now, mesh.ResourceName{Type: mesh.TypeEndpoint, Name: part.eds}, s)
}

// keepOnly ends the subscriptions of assignments that are no longer named.
func (c *core) keepOnly(s *sub, service string) {
	for _, n := range s.services {
		if n != service {
			c.release(mesh.ResourceName{Type: mesh.TypeEndpoint, Name: n}, s)
		}
	}
	s.services = slices.DeleteFunc(s.services, func(n string) bool { return n != service })
}

func (c *core) takeOut(s *sub) {
	if s.inForce == nil {
		return
	}
	c.applier.Remove(s.name)
	s.inForce, s.kept, s.applied, s.hostSeq = nil, nil, [2]uint64{}, 0
	c.out.save = true
}

func compose(part *clusterPart, cds, eds *entry, endpoints []mesh.Endpoint) *Cluster {
	next := part.base
	next.Endpoints = endpoints
	next.ClusterVersion = cds.resource.GetVersion()
	next.ConfirmedAt, next.FromDisk = cds.confirmedAt, cds.fromDisk
	if eds == nil {
		return &next
	}
	next.EndpointVersion = eds.resource.GetVersion()
	if f := eds.content.overprovisioning; f > 0 {
		next.Balancing.Overprovisioning = f
	}
	next.FromDisk = next.FromDisk || eds.fromDisk
	if eds.confirmedAt.Before(next.ConfirmedAt) {
		next.ConfirmedAt = eds.confirmedAt
	}
	return &next
}

// kept are the one or two resources that a cluster was made from.
func kept(cds, eds *entry) []*discoveryv3.Resource {
	k := []*discoveryv3.Resource{cds.resource}
	if eds != nil && eds.resource != nil {
		k = append(k, eds.resource)
	}
	return k
}
