package xds_test

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// sink is a client's connection that, once it swallows, brings nothing any more
// but its end.
type sink struct {
	net.Conn
	swallows *atomic.Bool
}

func (s sink) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil || !s.swallows.Load() {
			return n, err
		}
	}
}

// swallowing gives a connection, and what makes it swallow.
func (r *rig) swallowing() (*grpc.ClientConn, *atomic.Bool) {
	var swallows atomic.Bool
	return r.dial(func(c net.Conn) net.Conn { return sink{c, &swallows} }), &swallows
}

// acknowledged opens a stream of a node that has acknowledged CDS.
func (r *rig) acknowledged(conn *grpc.ClientConn, id string) *xdstest.Stream {
	r.t.Helper()
	s := xdstest.Open(r.t, conn, xdstest.Delta, &corev3.Node{Id: id})
	s.Subscribe(mesh.TypeCluster, "*")
	s.ExpectAcked("cds empty")
	return s
}

// answering lets time go by in which the streams answer what comes.
func answering(d time.Duration, streams ...*xdstest.Stream) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, s := range streams {
			for _, r := range s.Arrived() {
				s.Ack(r)
			}
		}
		time.Sleep(100 * time.Millisecond) // bubble time
	}
	synctest.Wait()
}

func (r *rig) closed(want string) {
	r.t.Helper()
	r.metric("freshmesh_connections_closed_total", `
# HELP freshmesh_connections_closed_total Connections that the server closed because no new stream followed a reset.
# TYPE freshmesh_connections_closed_total counter
freshmesh_connections_closed_total `+want+"\n")
}

// events gives "event reason" for each line of a node's history that has a reason.
func events(n ack.Node) []string {
	var out []string
	for _, e := range n.History {
		if e.Reason != "" {
			out = append(out, e.Event+" "+e.Reason)
		}
	}
	return out
}

// Whatever swallows responses may swallow the stream's end: only the connection's
// end tells the client, 3 s after that of the stream.
func TestConnectionThatSwallowsIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		conn, swallows := r.swallowing()
		s := r.acknowledged(conn, "n")
		synctest.Wait()
		began := time.Now()
		swallows.Store(true)
		for s.Ended() == nil && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond) // bubble time
			synctest.Wait()
		}
		if took := time.Since(began); took < 18*time.Second || took > 18200*time.Millisecond {
			t.Errorf("the client hears of it after %v, want probe interval 10 s, ack timeout 5 s and 3 s", took)
		}
		r.closed("1")
		n := r.nodes()
		if want := []string{"reset ack_timeout", "disconnected connection closed: no new stream within 3s"}; len(n) != 1 || !slices.Equal(events(n[0])[max(0, len(events(n[0]))-2):], want) {
			t.Errorf("history %+v", n)
		}
		// On its new connection it is as good as ever.
		swallows.Store(false)
		r.acknowledged(conn, "n")
		synctest.Wait()
		if n := r.nodes(); n[0].State != ack.Fresh || n[0].Resets != 1 {
			t.Errorf("came back as %+v", n[0])
		}
	})
}

// A client that does come back keeps its connection, wherever it comes.
func TestConnectionOfAClientThatReturnsStays(t *testing.T) {
	for _, other := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, nil)
			old := r.acknowledged(r.conn, "n")
			time.Sleep(17 * time.Second) // bubble time; it answers no probe
			if code, message := old.ExpectEnd(); code != codes.Unavailable || !strings.Contains(message, "ack_timeout") {
				t.Fatalf("ended with %v %q", code, message)
			}
			conn := r.conn
			if other {
				conn = r.dial(nil)
			}
			answering(10*time.Second, r.acknowledged(conn, "n"))
			r.closed("0")
			if n := r.nodes(); len(n) != 1 || n[0].State != ack.Fresh || n[0].Resets != 1 {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// Nodes may share a connection. One that is silent does not cost the others their
// streams while they answer; a node's own streams are no reason to spare it.
func TestConnectionThatOthersAnswerOnStays(t *testing.T) {
	for _, test := range []struct {
		name, other, closed string
		answers             bool
	}{
		{"another node answers", "healthy", "0", true},
		{"another node is silent, too", "mute", "1", false},
		{"the node has another stream", "n", "1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.acknowledged(r.conn, "n")
				other := r.acknowledged(r.conn, test.other)
				if test.answers {
					answering(20*time.Second, other)
				} else {
					time.Sleep(20 * time.Second) // bubble time
				}
				r.closed(test.closed)
				if ended := other.Ended() != nil; ended == (test.closed == "0") {
					t.Errorf("the other stream ended: %v", other.Ended())
				}
			})
		})
	}
}

// A stream on which nobody says who they are ends when a silent node's would, is
// counted, and takes its connection along unless somebody answers there.
func TestStreamWithoutARequest(t *testing.T) {
	for _, shared := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, nil)
			conn := r.dial(nil)
			mute := xdstest.Open(t, conn, xdstest.SotW, &corev3.Node{Id: "mute"})
			var healthy []*xdstest.Stream
			want := "1"
			if shared {
				healthy, want = append(healthy, r.acknowledged(conn, "healthy")), "0"
			}
			answering(14900*time.Millisecond, healthy...)
			if err := mute.Ended(); err != nil {
				t.Fatalf("ended early: %v", err)
			}
			answering(200*time.Millisecond, healthy...)
			if code, message := mute.ExpectEnd(); code != codes.Unavailable || !strings.Contains(message, "no_request") {
				t.Errorf("ended with %v %q", code, message)
			}
			r.resets(map[string]int{"no_request": 1})
			answering(4*time.Second, healthy...)
			r.closed(want)
			for _, s := range healthy {
				if err := s.Ended(); err != nil {
					t.Errorf("the healthy stream ended: %v", err)
				}
			}
		})
	}
}
