package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// What the codec puts together from shared bytes is what proto.Marshal of the
// same message would say, in both variants.
func TestEncodedResponses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, 200)
		typ := mesh.Type(text.Draw(t, "type"))
		store := snapshot.New(snapshot.Config{})
		bodies := rapid.MapOfN(text, rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 5).Draw(t, "bodies")
		r := &ads.Response{
			Type: typ, Nonce: text.Draw(t, "nonce"), Version: mesh.Version(text.Draw(t, "version")),
			Removed: rapid.SliceOfN(text, 0, 3).Draw(t, "removed"),
		}
		var u mesh.Update
		for name, body := range bodies {
			u.Put = append(u.Put, mesh.Resource{Type: typ, Name: name, Body: body})
		}
		store.Publish(u, time.Unix(1, 0))
		r.Resources = store.View(mesh.View{}).All(typ)

		sotw := &discoveryv3.DiscoveryResponse{TypeUrl: string(typ), Nonce: r.Nonce, VersionInfo: string(r.Version)}
		delta := &discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: string(typ), Nonce: r.Nonce, SystemVersionInfo: string(r.Version), RemovedResources: r.Removed,
		}
		for _, b := range r.Resources {
			body := bodies[b.Name.Value()]
			one := &anypb.Any{TypeUrl: string(typ), Value: body}
			sotw.Resources = append(sotw.Resources, one)
			delta.Resources = append(delta.Resources, &discoveryv3.Resource{
				Name: b.Name.Value(), Version: string(mesh.VersionOf(body)), Resource: one,
			})
		}
		decodesTo(t, encode(r, false), sotw)
		decodesTo(t, encode(r, true), delta)
	})
}

func decodesTo(t *rapid.T, e *encoded, want proto.Message) {
	bytes, err := newCodec().Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(bytes.Materialize(), got); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("decoded (-want +got):\n%s", diff)
	}
}
