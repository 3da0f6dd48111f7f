package ack

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func carrying(names ...string) []Carried {
	var out []Carried
	for _, name := range names {
		out = append(out, Carried{Name: mesh.Intern(name), Version: mesh.Version("v-" + name)})
	}
	return out
}

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestDeliveriesAreBounded(t *testing.T) {
	var d Deliveries
	for i := range deliveryLimit + 5 {
		d.Sent(mesh.TypeEndpoint, mesh.Generation(i), at(i), carrying("a"))
	}
	all, gone := d.All()
	if len(all) != deliveryLimit || all[0].Generation != 5 || !gone.Equal(at(4)) {
		t.Errorf("%d kept, the first of generation %d, gone %v", len(all), all[0].Generation, gone)
	}
	var other Deliveries
	other.Sent(mesh.TypeEndpoint, 100, at(6), carrying("b"))
	joined, gone := d.Join(&other).All()
	if len(joined) != deliveryLimit || joined[1].Generation != 100 || joined[0].Generation != 6 || !gone.Equal(at(5)) {
		t.Errorf("joined: %d kept, %+v, gone %v", len(joined), joined[:2], gone)
	}
}

func TestDeliveriesAnswers(t *testing.T) {
	var d Deliveries
	d.Sent(mesh.TypeEndpoint, 1, at(1), carrying("a"))
	d.Sent(mesh.TypeEndpoint, 1, at(2), nil) // told nothing
	d.Answered(mesh.TypeEndpoint, at(2), at(3), false, "")
	d.Answered(mesh.TypeCluster, at(1), at(3), false, "")
	if all, _ := d.All(); len(all) != 1 || !all[0].AnsweredAt.IsZero() {
		t.Errorf("the answer to a probe, or of another type: %+v", all)
	}
	d.Sent(mesh.TypeCluster, 1, at(4), carrying("a"))
	d.Answered(mesh.TypeEndpoint, at(1), at(5), true, "no")
	d.Answered(mesh.TypeEndpoint, at(1), at(6), false, "") // answered before
	all, _ := d.All()
	if got := all[0]; !got.AnsweredAt.Equal(at(5)) || !got.Refused || got.Message != "no" || !all[1].AnsweredAt.IsZero() {
		t.Errorf("got %+v", all)
	}
}

func TestDeliveryCarried(t *testing.T) {
	var d Deliveries
	d.Sent(mesh.TypeEndpoint, 1, at(1), carrying("c", "a"))
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("n%02d", 19-i))
	}
	d.Sent(mesh.TypeEndpoint, 2, at(2), carrying(many...))
	all, _ := d.All()
	if len(all[1].Names) != 2 || all[1].Count != 20 {
		t.Errorf("%d names are kept of %d", len(all[1].Names), all[1].Count)
	}
	for _, test := range []struct {
		delivery int
		typ      mesh.Type
		name     string
		version  mesh.Version
		want     Covers
	}{
		{0, mesh.TypeEndpoint, "a", "v-a", Within},
		{0, mesh.TypeEndpoint, "b", "", Outside}, // all are known
		{0, mesh.TypeCluster, "a", "", Outside},
		{1, mesh.TypeEndpoint, "n00", "v-n00", Within},
		{1, mesh.TypeEndpoint, "n19", "v-n19", Within},
		{1, mesh.TypeEndpoint, "n07", "", Perhaps},
		{1, mesh.TypeEndpoint, "z", "", Outside},
	} {
		if v, got := all[test.delivery].Carried(test.typ, test.name); got != test.want || v != test.version {
			t.Errorf("%d %s %s: %q %v, want %q %v", test.delivery, test.typ.Short(), test.name, v, got, test.version, test.want)
		}
	}
}
