package ads

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// A server that stood still must not blame its clients: their answers lie unread.
func TestLateTickGivesTimeToReadAnswers(t *testing.T) {
	now := time.Unix(0, 0)
	store := snapshot.New(snapshot.Config{})
	store.Publish(mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: "a", Body: []byte("v1")}}}, now)
	s := New(Config{Delta: true, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 4 * time.Second}}, store.View(mesh.View{}), now)
	s.Request(Request{Type: mesh.TypeEndpoint, Subscribe: []string{"a"}}, now)
	r := s.Next(now)
	s.Sent()
	s.Deadline(now) // in 4 s

	late := now.Add(30 * time.Second)
	if reason := s.Tick(late); reason != "" {
		t.Fatalf("after a stop of the server: closed for %s", reason)
	}
	if wait := s.Deadline(late).Sub(late); wait > time.Second {
		t.Errorf("looks again only after %v", wait)
	}
	if out := s.Request(Request{Type: mesh.TypeEndpoint, Nonce: r.Nonce}, late); out.Answer != Acked {
		t.Fatalf("answer %v, want Acked", out.Answer)
	}

	s.Resend(mesh.TypeEndpoint, mesh.Intern("a"), late)
	s.Next(late)
	s.Sent()
	if reason := s.Tick(s.Deadline(late)); reason != CloseAckTimeout {
		t.Errorf("a silent client, looked at in time: %q, want %s", reason, CloseAckTimeout)
	}
}
