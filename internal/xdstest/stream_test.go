package xdstest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func put(resources ...mesh.Resource) mesh.Update { return mesh.Update{Put: resources} }

// Over TCP, silence is shown by the order of what does come.
func TestStreamOverTCP(t *testing.T) {
	for _, p := range []Protocol{SotW, Delta} {
		t.Run(string(p), func(t *testing.T) {
			system := newScripted().system()
			system.Publish(put(Resource(mesh.TypeEndpoint, "a", "v1")))
			s := Open(t, ServeTCP(t, system.Register), p, &corev3.Node{Id: "n"})
			s.Subscribe(mesh.TypeEndpoint, "a", "b")
			s.ExpectAcked("eds +a@v1")
			system.Publish(put(Resource(mesh.TypeEndpoint, "unrelated", "v1")))
			system.Publish(put(Resource(mesh.TypeEndpoint, "a", "v2")))
			if got := s.Expect().Resources[0].Label; got != "v2" {
				t.Errorf("got %s, want v2: the change of an unrelated resource was sent", got)
			}
		})
	}
}

func TestStreamEnd(t *testing.T) {
	s := Open(t, ServeTCP(t, newScripted().system().Register), Delta, &corev3.Node{Id: "banned"})
	s.Subscribe(mesh.TypeCluster)
	if code, message := s.ExpectEnd(); code != codes.PermissionDenied || message != "node banned may not connect" {
		t.Errorf("got %v %q", code, message)
	}
	if s.Ended() == nil {
		t.Error("Ended is nil after the end")
	}
}

// failing is a TB that keeps the message of a failure instead of failing the test.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Each expectation fails when it should, in bubble time.
func TestExpectationsFail(t *testing.T) {
	tests := []struct {
		name, want string
		expect     func(*Stream)
	}{
		{"Expect in silence", "no response within 5s", func(s *Stream) { s.Expect() }},
		{"ExpectText", `got response "cds +a@v1", want "cds +b@v1"`, func(s *Stream) { s.Subscribe(mesh.TypeCluster, "*"); s.ExpectText("cds +b@v1") }},
		{"Silent", "want silence", func(s *Stream) { s.Subscribe(mesh.TypeCluster, "*"); s.Silent() }},
		{"Silent after the end", "the stream ended", func(s *Stream) { s.Close(); s.Silent() }},
		{"Expect after the end", "the stream ended", func(s *Stream) { s.Close(); s.Expect() }},
		{"ExpectEnd", "the stream is open", func(s *Stream) { s.ExpectEnd() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				system := newScripted().system()
				system.Publish(put(Resource(mesh.TypeCluster, "a", "v1")))
				f := &failing{TB: t}
				s := Open(f, Serve(t, system.Register), Delta, &corev3.Node{Id: "n"})
				done := make(chan struct{})
				go func() { defer close(done); test.expect(s) }()
				<-done
				if !strings.Contains(f.message, test.want) {
					t.Errorf("failed with %q, want %q", f.message, test.want)
				}
			})
		})
	}
}

func TestDescribeIsTheInverseOfResource(t *testing.T) {
	for _, typ := range append(mesh.GeneratedTypes[:], "type.googleapis.com/google.protobuf.StringValue") {
		r := Resource(typ, "name", "label")
		name, label, err := Describe(typ, r.Body)
		if name != "name" || label != "label" || err != nil {
			t.Errorf("%s: got %q, %q, %v", typ, name, label, err)
		}
	}
}
