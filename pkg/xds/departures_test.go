package xds

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// Clients that subscribe to many names, acknowledge nothing and leave, again and again, are
// forgotten before they fill the memory; that some are missing is said.
func TestDeparturesAreBoundedByWhatTheyHold(t *testing.T) {
	const names, streams, fit = 1000, 20, 5
	now := time.Now()
	d := departures{limit: fit * names * (nameBytes + lackBytes)}
	view := snapshot.New(snapshot.Config{}).View(mesh.View{})
	for i := range streams {
		core := ads.New(ads.Config{Delta: true, Policy: ack.Policy{ProbeInterval: time.Second, AckTimeout: time.Second}}, view, now)
		var wanted []string
		for n := range names {
			wanted = append(wanted, fmt.Sprint("name-", i, "-", n))
		}
		core.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: wanted}, now)
		d.add(&session{core: core, connected: now}, now.Add(time.Duration(i)*time.Millisecond))
	}
	list, lost := d.recent(now.Add(time.Second))
	if len(list) != fit || d.bytes != d.limit || !lost.Equal(now.Add((streams-fit-1)*time.Millisecond)) {
		t.Errorf("%d are remembered, of %d bytes; the last that is not left after %v", len(list), d.bytes, lost.Sub(now))
	}
	if list, _ := d.recent(now.Add(drain.Grace + time.Second)); len(list) != 0 || d.bytes != 0 {
		t.Errorf("%d are remembered for ever, of %d bytes", len(list), d.bytes)
	}
}
