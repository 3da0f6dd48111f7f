package xdstest

import (
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Deadline is how long an expectation waits, in real or in bubble time.
const Deadline = 5 * time.Second

// Expect gives the next response, whatever its type, and fails the test when
// none comes within Deadline or the stream ends.
func (s *Stream) Expect() *Response {
	s.t.Helper()
	timer := time.NewTimer(Deadline)
	defer timer.Stop()
	select {
	case r, ok := <-s.arrived:
		if !ok {
			s.t.Fatalf("the stream ended: %v", s.end)
		}
		return s.seen(r)
	case <-timer.C:
		s.t.Fatalf("no response within %v", Deadline)
	}
	return nil
}

// ExpectText is Expect, and compares the response's String.
func (s *Stream) ExpectText(want string) *Response {
	s.t.Helper()
	r := s.Expect()
	if got := r.String(); got != want {
		s.t.Fatalf("got response %q, want %q", got, want)
	}
	return r
}

// ExpectAcked is ExpectText, and acknowledges.
func (s *Stream) ExpectAcked(want string) *Response {
	s.t.Helper()
	r := s.ExpectText(want)
	s.Ack(r)
	return r
}

// Arrived waits, inside a synctest bubble, until everything in it blocks, and
// gives what the stream has received and the test has not seen.
func (s *Stream) Arrived() []*Response {
	synctest.Wait()
	var all []*Response
	for {
		select {
		case r, ok := <-s.arrived:
			if !ok {
				return all
			}
			all = append(all, s.seen(r))
		default:
			return all
		}
	}
}

// Silent fails the test unless Arrived is empty and the stream is open. It is
// for a synctest bubble only.
func (s *Stream) Silent() {
	s.t.Helper()
	if all := s.Arrived(); len(all) > 0 {
		s.t.Fatalf("got %v, want silence", all)
	}
	if err := s.Ended(); err != nil {
		s.t.Fatalf("the stream ended: %v", err)
	}
}

func (s *Stream) seen(r *Response) *Response {
	s.typeState(r.Type).nonce = r.Nonce
	return r
}

// ExpectEnd waits until the stream ends, and gives its status code and
// message; unseen responses are dropped.
func (s *Stream) ExpectEnd() (codes.Code, string) {
	s.t.Helper()
	timer := time.NewTimer(Deadline)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-s.arrived:
			if !ok {
				st := status.Convert(s.end)
				return st.Code(), st.Message()
			}
		case <-timer.C:
			s.t.Fatalf("the stream is open after %v", Deadline)
		}
	}
}
