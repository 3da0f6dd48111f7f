package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Disagreement is a resource of which two servers of one build hold different
// forms. What a server holds is a function of its source, so one of them is out of date.
type Disagreement struct {
	// Type is the short name, or the type URL.
	Type string `json:"type"`
	Name string `json:"name"`
	// Behind is the instance that holds what another has replaced; "" where that cannot be told.
	Behind string `json:"behind,omitempty"`
	// Since is when the forms came to differ, by the clock of a server; AgeSeconds is how long ago.
	Since      time.Time `json:"since"`
	AgeSeconds float64   `json:"ageSeconds"`
	// Stale: that is longer than the servers' ack timeout.
	Stale bool `json:"stale"`
	// Forms are what each server holds, in the order asked.
	Forms []Form `json:"forms"`
}

// Form is what one server holds.
type Form struct {
	Instance string `json:"instance"`
	// Version is "" for nothing.
	Version   mesh.Version `json:"version"`
	ChangedAt time.Time    `json:"changedAt,omitzero"`
}

const (
	// onItsWay is how young a difference may be and not count: the servers are not asked in the same instant.
	onItsWay = time.Second
	// maxDisagreements are named; one is enough to fail.
	maxDisagreements = 100
	// defaultDeadline counts where the servers do not say theirs.
	defaultDeadline = 5 * time.Second
)

// holdings is what one server says of the versions of one type.
type holdings struct {
	instance string
	time     time.Time
	byName   map[string]ack.Versions
}

// until tells when a version of a resource was replaced here; false when that is not known.
func (h holdings) until(name string, version mesh.Version) (time.Time, bool) {
	for _, p := range h.byName[name].Past {
		if p.Version == version {
			return p.Until, true
		}
	}
	return time.Time{}, false
}

// compare finds where the servers disagree. It asks for single versions only
// where their digests of a type differ. Servers of different builds, or that
// have not synced, are not compared.
func (c *client) compare(ctx context.Context, servers []answer) ([]Disagreement, error) {
	var out []Disagreement
	for _, group := range groups(servers) {
		for _, kind := range differing(group) {
			all, err := c.holdings(ctx, group, kind)
			if err != nil {
				return nil, err
			}
			out = append(out, disagreements(kind, all, deadlineOf(group))...)
		}
	}
	slices.SortStableFunc(out, func(a, b Disagreement) int { return cmp.Compare(b.AgeSeconds, a.AgeSeconds) })
	return out[:min(len(out), maxDisagreements)], nil
}

// groups gives the groups of servers whose resources must be the same.
func groups(servers []answer) [][]answer {
	var order []string
	byBuild := make(map[string][]answer)
	for _, a := range servers {
		if a.err != nil || !a.audit.Server.Synced || len(a.audit.Server.Digests) == 0 {
			continue
		}
		build := a.audit.Server.Build
		if byBuild[build] == nil {
			order = append(order, build)
		}
		byBuild[build] = append(byBuild[build], a)
	}
	out := make([][]answer, 0, len(order))
	for _, build := range order {
		if len(byBuild[build]) > 1 {
			out = append(out, byBuild[build])
		}
	}
	return out
}

func deadlineOf(group []answer) time.Duration {
	if s := group[0].audit.Server.AckTimeoutSeconds; s > 0 {
		return seconds(s)
	}
	return defaultDeadline
}

// differing gives the types whose digests are not the same everywhere, sorted. A type
// without resources is the same as one that is not there.
func differing(group []answer) []string {
	seen := make(map[string]mesh.Version)
	var kinds []string
	for _, a := range group {
		for _, d := range a.audit.Server.Digests {
			if _, ok := seen[d.Type]; !ok {
				seen[d.Type] = ""
				kinds = append(kinds, d.Type)
			}
		}
	}
	slices.Sort(kinds)
	digest := func(a answer, kind string) mesh.Version {
		for _, d := range a.audit.Server.Digests {
			if d.Type == kind && d.Resources > 0 {
				return d.Version
			}
		}
		return ""
	}
	return slices.DeleteFunc(kinds, func(kind string) bool {
		first := digest(group[0], kind)
		return !slices.ContainsFunc(group, func(a answer) bool { return digest(a, kind) != first })
	})
}

func (c *client) holdings(ctx context.Context, group []answer, kind string) ([]holdings, error) {
	out, errs := make([]holdings, len(group)), make([]error, len(group))
	var wg sync.WaitGroup
	for i, a := range group {
		wg.Go(func() { out[i], errs[i] = c.holdingsOf(ctx, a, kind) })
	}
	wg.Wait()
	return out, cmp.Or(errs...)
}

func (c *client) holdingsOf(ctx context.Context, a answer, kind string) (holdings, error) {
	h := holdings{instance: a.audit.Server.Instance, byName: make(map[string]ack.Versions)}
	body, err := c.Get(ctx, a.server+"/versions?type="+url.QueryEscape(kind))
	if err != nil {
		return h, fmt.Errorf("%s: %w", a.server, err)
	}
	var all ack.AllVersions
	if err := json.Unmarshal(body, &all); err != nil || all.Time.IsZero() {
		return h, fmt.Errorf("%s: answer has no versions", a.server)
	}
	h.time = all.Time
	for _, v := range all.Resources {
		h.byName[v.Name] = v
	}
	return h, nil
}

// disagreements compares name by name.
func disagreements(kind string, all []holdings, deadline time.Duration) []Disagreement {
	names := make(map[string]bool)
	for _, h := range all {
		for name := range h.byName {
			names[name] = true
		}
	}
	var out []Disagreement
	for name := range names {
		d := Disagreement{Type: kind, Name: name}
		same := true
		for _, h := range all {
			v := h.byName[name]
			d.Forms = append(d.Forms, Form{Instance: h.instance, Version: v.Version, ChangedAt: v.ChangedAt})
			same = same && v.Version == all[0].byName[name].Version
		}
		if same {
			continue
		}
		age := d.judge(all)
		if age < onItsWay {
			continue
		}
		d.AgeSeconds, d.Stale = age.Seconds(), age > deadline
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Disagreement) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// judge finds who is behind, and since when: whoever holds what another server
// has replaced, since that replaced it. Where nobody remembers the other's
// form, they differ at least since the newer one came.
func (d *Disagreement) judge(all []holdings) (age time.Duration) {
	found := false
	for _, behind := range all {
		held := behind.byName[d.Name].Version
		for _, other := range all {
			until, ok := other.until(d.Name, held)
			if !ok || other.byName[d.Name].Version == held {
				continue
			}
			if old := other.time.Sub(until); !found || old > age {
				found, age = true, old
				d.Behind, d.Since = behind.instance, until
			}
		}
	}
	if found {
		return age
	}
	for i, h := range all {
		v, known := h.byName[d.Name]
		if !known {
			continue
		}
		if old := h.time.Sub(v.ChangedAt); i == 0 || d.Since.IsZero() || old < age {
			age, d.Since = old, v.ChangedAt
		}
	}
	return age
}
