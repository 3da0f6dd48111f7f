package xds

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestLongNamesAreRefused(t *testing.T) {
	long := strings.Repeat("n", maxName+1)
	for field, r := range map[string]ads.Request{
		"type_url":                   {Type: mesh.Type(long)},
		"resource_names":             {Names: []string{"a", long}},
		"resource_names_subscribe":   {Subscribe: []string{long}},
		"resource_names_unsubscribe": {Unsubscribe: []string{long}},
	} {
		if err := check(r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field+": 1025 bytes") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := check(ads.Request{Type: mesh.TypeCluster, Names: []string{long[1:]}}); err != nil {
		t.Error(err)
	}
	for field, n := range map[string]*corev3.Node{
		"node.id":            {Id: long},
		"node.locality.zone": {Id: "n", Locality: &corev3.Locality{Zone: long}},
	} {
		if _, err := parseNode(n, 1<<16); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	if got := cut("short"); got != "short" {
		t.Errorf("%q", got)
	}
	got := cut(strings.Repeat("é", maxMessage))
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes, end %q", len(got), got[len(got)-8:])
	}
	n, err := parseNode(&corev3.Node{Id: "n", UserAgentName: strings.Repeat("u", 1<<20)}, 1<<16)
	if err != nil || len(n.Client) > maxMessage {
		t.Errorf("client of %d bytes, %v", len(n.Client), err)
	}
}
