package http1

import (
	"errors"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

func TestResponseRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want *Error
	}{
		"bare LF":             {"HTTP/1.1 200 OK\nX: y\r\n\r\n", errBareLF},
		"no status":           {"HTTP/1.1\r\n\r\n", errStatusLine},
		"status of 2 digits":  {"HTTP/1.1 20 OK\r\n\r\n", errStatusLine},
		"status of 4 digits":  {"HTTP/1.1 2000 OK\r\n\r\n", errStatusLine},
		"signed status":       {"HTTP/1.1 +20 OK\r\n\r\n", errStatusLine},
		"status below 100":    {"HTTP/1.1 099 OK\r\n\r\n", errStatusLine},
		"two spaces":          {"HTTP/1.1  200 OK\r\n\r\n", errStatusLine},
		"version 1.2":         {"HTTP/1.2 200 OK\r\n\r\n", errVersion},
		"version 2":           {"HTTP/2.0 200 OK\r\n\r\n", errStatusLine},
		"NUL in the reason":   {"HTTP/1.1 200 O\x00K\r\n\r\n", errStatusLine},
		"obs-fold":            {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", errFold},
		"CL and TE":           {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", errLengthCoding},
		"two CL":              {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", errManyLengths},
		"signed CL":           {"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", errLength},
		"TE gzip":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", errCoding},
		"TE in HTTP/1.0":      {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", errCoding10},
		"something else":      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", errStatusLine},
		"space before colon":  {"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", errFieldName},
		"NUL in a value":      {"HTTP/1.1 200 OK\r\nX: y\x00\r\n\r\n", errFieldValue},
		"CL that is not one":  {"HTTP/1.1 204 OK\r\nContent-Length: x\r\n\r\n", errLength},
		"a coding for no end": {"HTTP/1.1 304 OK\r\nTransfer-Encoding: x\r\n\r\n", errCoding},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.text), "GET", Limits{})
			got, ok := errors.AsType[*Error](err)
			if !ok || got != c.want {
				t.Fatalf("got %d, %v, want %q", n, err, c.want)
			}
		})
	}
}

// Where the body ends: RFC 9112 section 6.3.
func TestResponseLength(t *testing.T) {
	for _, c := range []struct {
		method, text string
		length       int64
		chunked      bool
		close        bool
	}{
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 5, false, false},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, false, false},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", -1, true, false},
		{"GET", "HTTP/1.1 200 OK\r\n\r\n", -1, false, true},
		{"GET", "HTTP/1.1 200\r\n\r\n", -1, false, true},
		{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 5, false, true},
		{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", 5, false, false},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", 5, false, true},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0, false, false},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, true, false},
		{"HEAD", "HTTP/1.1 200 OK\r\n\r\n", 0, false, false},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 0, false, false},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 0, false, false},
		{"GET", "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false, false},
	} {
		var r Response
		n, err := r.Parse([]byte(c.text), c.method, Limits{})
		if err != nil || n != len(c.text) || r.Length != c.length || r.Chunked != c.chunked || r.Close != c.close {
			t.Errorf("%s %q: %d, %v, %+v", c.method, c.text, n, err, r)
		}
	}
}

func TestResponseWritten(t *testing.T) {
	for name, c := range map[string]struct {
		method, text string
		framing      Framing
		want         string
	}{
		"as it came": {
			"GET", "HTTP/1.1 200 Fine\r\nX-Y: z\r\ncontent-length: 5\r\n\r\n",
			Framing{Length: true},
			"HTTP/1.1 200 Fine\r\nX-Y: z\r\ncontent-length: 5\r\n\r\n",
		},
		"hop by hop": {
			"GET", "HTTP/1.0 200 OK\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nKeep-Alive: 3\r\nContent-Length: 5\r\n\r\n",
			Framing{Length: true, KeepAlive: true},
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: keep-alive\r\n\r\n",
		},
		"chunked": {
			"GET", "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n",
			Framing{Chunked: true, Close: true},
			"HTTP/1.1 200\r\nTrailer: X\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
		},
		"HEAD keeps the length": {
			"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
			Framing{},
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		},
		"304 keeps the length": {
			"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
			Framing{},
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		},
		"204 has no length": {
			"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nX: y\r\n\r\n",
			Framing{},
			"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
		},
		"switching protocols": {
			"GET", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n",
			Framing{},
			"HTTP/1.1 101 Switching Protocols\r\nX: y\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			if _, err := r.Parse([]byte(c.text), c.method, Limits{}); err != nil {
				t.Fatal(err)
			}
			if got := string(r.Append(nil, c.framing)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			r.Changed = true
			anew := r.Append(nil, c.framing)
			var again Response
			if _, err := again.Parse(anew, c.method, Limits{}); err != nil {
				t.Fatalf("written anew: %q: %v", anew, err)
			}
			if again.Status != r.Status || again.Length != r.Length || again.Chunked != r.Chunked || again.Protocol != r.Protocol {
				t.Errorf("written anew: %q: %+v, want %+v", anew, again.Response, r.Response)
			}
		})
	}
}

func TestWrittenFromValues(t *testing.T) {
	fields := []message.Field{{Name: "content-length", Value: "99"}, {Name: "transfer-encoding", Value: "chunked"}, {Name: "x", Value: "y"}, {Name: "te", Value: "trailers"}}
	q := string(AppendRequest(nil, &message.Request{Method: "POST", Authority: "a:1", Path: "/p", Length: -1, Fields: fields}))
	if want := "POST /p HTTP/1.1\r\nhost: a:1\r\nx: y\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\r\n"; q != want {
		t.Errorf("got %q, want %q", q, want)
	}
	q = string(AppendRequest(nil, &message.Request{Method: "POST", Authority: "a:1", Path: "/p"}))
	if want := "POST /p HTTP/1.1\r\nhost: a:1\r\ncontent-length: 0\r\n\r\n"; q != want {
		t.Errorf("got %q, want %q", q, want)
	}
	p := string(AppendResponse(nil, &message.Response{Status: 404, Length: 3, Fields: fields}, Framing{Length: true}))
	if want := "HTTP/1.1 404 Not Found\r\nx: y\r\ncontent-length: 3\r\n\r\n"; p != want {
		t.Errorf("got %q, want %q", p, want)
	}
}
