package xdstest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// System is a server under test, as a transcript drives it. It is made inside
// the transcript's bubble.
type System struct {
	// Register adds its services to the gRPC server.
	Register func(grpc.ServiceRegistrar)
	// Options are for the gRPC server; may be nil.
	Options []grpc.ServerOption
	// Publish changes what it serves.
	Publish func(mesh.Update)
	// Audit gives what `audit` prints; nil when the system has none. The
	// arguments are the words after the command.
	Audit func(args []string) string
}

// RunTranscript runs the commands of the file against the system that start
// makes, in a synctest bubble. start registers with t.Cleanup whatever the
// system has to stop.
//
// After each command the transcript waits until the bubble is quiet, and
// prints all that the streams received, in order and by stream:
//
//	NAME #2 eds +echo@v1 -old    the second response on the stream
//	NAME closed UNAVAILABLE: …   its end
//
// So a command without output is proof of silence. The commands:
//
//	delta-open node=N [as=NAME] [agent=A] [only=TYPE]    opens a stream; NAME is N if not given;
//	sotw-open  node=N [as=NAME] [agent=A] [only=TYPE]    only: on the separate service of a type, not ADS
//	subscribe TYPE [NAMES…] [held=(NAMES…)]  held: as initial_resource_versions, with the versions this transcript saw last
//	unsubscribe TYPE NAMES…
//	ack [#N] [subscribe=(…)] [unsubscribe=(…)]   the response #N, else the oldest unanswered one
//	nack [#N] [MESSAGE…] [version=new]    new: with the version refused, as some clients do, instead of the one held
//	refuse TYPE [MESSAGE…]                a NACK of the type with a nonce never issued and no names
//	resend TYPE                              the last request's subscription again, with a nonce never issued
//	pause                                    stops reading the stream, after at most one more response
//	resume
//	close                                    cancels the stream
//	put TYPE NAME LABEL [service=NAME]       publishes one resource; service: the assignment that follows a cluster, if not its own name's
//	delete TYPE NAME
//	publish                                  one update: a line "put …" or "delete …" each
//	wait DURATION                            lets bubble time pass
//	audit [ARGS…]
//
// TYPE is a short name or a type URL; "-" leaves type_url empty. Commands act on the stream named last;
// on=NAME after any of them names another. Nonces never appear: a response is
// known by its number.
func RunTranscript(t *testing.T, path string, start func(testing.TB) System) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		system := start(t)
		s := &transcript{t: t, system: system, conn: Serve(t, system.Register, system.Options...), versions: map[mesh.ResourceName]string{}}
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			out, err := s.do(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out + s.news()
		})
	})
}

// transcript is the state of one run.
type transcript struct {
	t       testing.TB
	system  System
	conn    *grpc.ClientConn
	streams []*namedStream
	// current is the stream named last; nil before the first.
	current *namedStream
	// versions are those seen last in any delta response.
	versions map[mesh.ResourceName]string
}

// namedStream is a stream with the responses it has received.
type namedStream struct {
	*Stream
	name     string
	received []*Response
	// answered holds the numbers of acknowledged and refused responses.
	answered map[int]bool
	closed   bool
}

// do runs one command, and gives what it prints itself.
func (s *transcript) do(d *datadriven.TestData) (string, error) {
	c, err := parseCommand(d.Cmd, d.CmdArgs)
	if err != nil {
		return "", err
	}
	switch c.name {
	case "delta-open", "sotw-open":
		return "", s.open(c)
	case "put", "delete", "publish":
		return "", s.publish(c, d.Input)
	case "wait":
		return "", s.wait(c)
	case "audit":
		if s.system.Audit == nil {
			return "", fmt.Errorf("this system has no audit")
		}
		return s.system.Audit(c.words), nil
	}
	stream, err := s.stream(c)
	if err != nil {
		return "", err
	}
	switch c.name {
	case "subscribe", "unsubscribe", "resend":
		return "", s.request(stream, c)
	case "ack", "nack":
		return "", stream.answer(c)
	case "refuse":
		t, words, err := c.typeAndNames()
		if err == nil {
			stream.Send(Request{Type: t, Nonce: "never issued", Error: cmp.Or(strings.Join(words, " "), "refused")})
		}
		return "", err
	case "pause":
		stream.Pause()
		return "", nil
	case "resume":
		stream.Resume()
		return "", nil
	case "close":
		stream.Close()
		return "", nil
	}
	return "", fmt.Errorf("command %q is unknown", c.name)
}

func (s *transcript) open(c command) error {
	name := c.option("as", c.option("node", ""))
	if slices.ContainsFunc(s.streams, func(n *namedStream) bool { return n.name == name && !n.closed }) {
		return fmt.Errorf("stream %q is open", name)
	}
	p := Protocol(strings.TrimSuffix(c.name, "-open"))
	node := &corev3.Node{Id: c.option("node", ""), UserAgentName: c.option("agent", "")}
	var only mesh.Type
	if short := c.option("only", ""); short != "" {
		t, ok := mesh.ParseType(short)
		if !ok {
			return fmt.Errorf("type %q is unknown", short)
		}
		only = t
	}
	s.current = &namedStream{Stream: OpenOnly(s.t, s.conn, p, only, node), name: name, answered: map[int]bool{}}
	s.streams = append(s.streams, s.current)
	return nil
}

// stream is the stream that a command acts on.
func (s *transcript) stream(c command) (*namedStream, error) {
	if name, ok := c.options["on"]; ok {
		// A name may be used again after its stream was closed: the newest counts.
		for _, n := range slices.Backward(s.streams) {
			if n.name == name[0] {
				s.current = n
				return n, nil
			}
		}
		return nil, fmt.Errorf("no stream %q", name[0])
	}
	if s.current == nil {
		return nil, fmt.Errorf("no stream is open")
	}
	return s.current, nil
}

// request sends a change of a subscription.
func (s *transcript) request(stream *namedStream, c command) error {
	t, names, err := c.typeAndNames()
	if err != nil {
		return err
	}
	switch held := c.options["held"]; {
	case c.name == "unsubscribe":
		stream.Unsubscribe(t, names...)
	case c.name == "resend":
		stream.Send(Request{Type: t, Nonce: "never issued", Names: stream.typeState(t).names, Version: stream.typeState(t).version})
	case held == nil:
		stream.Subscribe(t, names...)
	case stream.Protocol == SotW:
		return fmt.Errorf("held= is for delta streams")
	default:
		initial := make(map[string]string, len(held))
		for _, name := range held {
			initial[name] = s.versions[mesh.ResourceName{Type: t, Name: name}]
		}
		stream.Send(Request{Type: t, Subscribe: names, Initial: initial})
	}
	return nil
}

func (s *transcript) wait(c command) error {
	if len(c.words) != 1 {
		return fmt.Errorf("wait wants a duration")
	}
	d, err := time.ParseDuration(c.words[0])
	if err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	time.Sleep(d) // bubble time
	return nil
}

// publish changes what the system serves, in one step.
func (s *transcript) publish(c command, input string) error {
	lines := []command{c}
	if c.name == "publish" {
		lines = nil
		for line := range strings.Lines(input) {
			name, args, err := datadriven.ParseLine(line)
			if err != nil {
				return err
			}
			one, err := parseCommand(name, args)
			if err != nil {
				return err
			}
			lines = append(lines, one)
		}
	}
	var u mesh.Update
	for _, line := range lines {
		if err := line.addTo(&u); err != nil {
			return err
		}
	}
	s.system.Publish(u)
	return nil
}

// news waits for quiet, and prints what the streams have received since.
func (s *transcript) news() string {
	var b strings.Builder
	for _, n := range s.streams {
		for _, r := range n.Arrived() {
			n.received = append(n.received, r)
			fmt.Fprintf(&b, "%s #%d %s\n", n.name, len(n.received), r)
			for _, x := range r.Resources {
				if n.Protocol == Delta {
					s.versions[mesh.ResourceName{Type: r.Type, Name: x.Name}] = x.Version
				}
			}
		}
		if err := n.Ended(); err != nil && !n.closed {
			n.closed = true
			st := status.Convert(err)
			fmt.Fprintf(&b, "%s closed %s: %s\n", n.name, st.Code(), st.Message())
		}
	}
	return b.String()
}
