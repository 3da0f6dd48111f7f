package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What is accepted is what net/http accepts, framed alike; and the head that is
// written for it says to net/http what the one that came said.
func FuzzRequest(f *testing.F) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://a:80/%41?b HTTP/1.1\r\nHost: a:80\r\nConnection: close, X\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhelloGET /",
		"POST /p HTTP/1.1\r\nhost:a\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\nGET /",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nAccept:\t \r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers, gzip\r\nKeep-Alive: x\r\nX: \xc3\xbc\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
		"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// A second request in the same bytes must be found where net/http finds it.
		for len(data) > 0 {
			got, r, ok := agree(t, data)
			if !ok {
				return
			}
			for _, changed := range []bool{false, true} {
				r.Changed = changed
				written(t, got, r)
			}
			data = data[len(data)-got.Rest:]
		}
	})
}

// written checks what Append makes of a request.
func written(t *testing.T, got seen, r *Request) {
	t.Helper()
	out := r.Append(nil)
	if r.Chunked {
		if got.Body != "" {
			out = fmt.Appendf(out, "%x\r\n%s\r\n", len(got.Body), got.Body)
		}
		out = append(out, "0\r\n\r\n"...)
	} else {
		out = append(out, got.Body...)
	}
	want := got
	want.Line = fmt.Sprintf("%s %s HTTP/1.1", r.Method, r.Path)
	want.Rest, want.Close, want.Trailers = 0, false, nil
	again, err := theirs(out)
	if err != nil {
		t.Fatalf("written: %v\n%q", err, out)
	}
	again.Trailers = nil
	want.Fields, again.Fields = withoutLength(want.Fields), withoutLength(again.Fields)
	if fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", want) {
		t.Fatalf("written differently:\n came %+v\n went %+v\n%q", want, again, out)
	}
}

// withoutLength takes content-length out: zeros before it go, and a length of
// zero may be said where it was not. What it says is compared with the body.
func withoutLength(fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return strings.HasPrefix(f, "content-length: ") })
}

// The same for bodies in chunked coding.
func FuzzChunked(f *testing.F) {
	for _, body := range []string{
		"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
		"5;a=b;c=\"d\"\r\nhello\r\n0\r\nX-Trailer: y\r\nGrpc-Status: 0\r\n\r\nGET / HTTP/1.1\r\n",
		"00005\r\nhello\r\n000\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n",
		"5 \r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
		"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n", "8000000000000000\r\n", "0\r\nX: y\r\n z\r\n\r\n",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		agree(t, append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), body...))
	})
}

// The same for responses.
func FuzzResponse(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.0 200 OK\r\nX: y\r\n\r\nuntil the end", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 304\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close, x\r\nX: y\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, head bool) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		got, r, err := oursResponse(data, method)
		if err != nil {
			return
		}
		want, err := theirsResponse(data, method)
		if err != nil {
			t.Fatalf("accepted, but net/http says: %v\n%q", err, data)
		}
		want.Close = want.Close || got.Close && r.Minor == 0
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("read differently:\n ours %+v\n http %+v\n%q", got, want, data)
		}
		for _, changed := range []bool{false, true} {
			r.Changed = changed
			framing := Framing{Length: r.HasBody(method) && r.Length >= 0, Chunked: r.Length < 0}
			out := r.Append(nil, framing)
			again, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), &http.Request{Method: method})
			if err != nil {
				t.Fatalf("written: %v\n%q", err, out)
			}
			if again.StatusCode != r.Status || r.HasBody(method) && again.ContentLength != r.Length {
				t.Fatalf("written: %d, %d, want %d, %d\n%q", again.StatusCode, again.ContentLength, r.Status, r.Length, out)
			}
		}
	})
}

func oursResponse(data []byte, method string) (seen, *Response, error) {
	var r Response
	data = bytes.Clone(data)
	n, err := r.Parse(data, method, Limits{})
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return seen{}, nil, err
	}
	s := seen{Line: fmt.Sprintf("HTTP/1.%d %d", r.Minor, r.Status), Close: r.Close, Fields: sorted(r.Fields)}
	s.Body, s.Trailers, s.Rest, err = oursBody(data[n:], r.Length, r.Chunked && r.Length < 0)
	return s, &r, err
}

func theirsResponse(data []byte, method string) (seen, error) {
	in := bytes.NewReader(data)
	b := bufio.NewReader(in)
	r, err := http.ReadResponse(b, &http.Request{Method: method})
	if err != nil {
		return seen{}, err
	}
	s := seen{Line: fmt.Sprintf("HTTP/1.%d %d", r.ProtoMinor, r.StatusCode), Close: r.Close}
	body, err := io.ReadAll(r.Body)
	s.Fields = theirFields(r.Header, wholeHeader(data)["Connection"], 1)
	s.Body, s.Trailers, s.Rest = string(body), theirFields(r.Trailer, nil, 1), b.Buffered()+in.Len()
	return s, err
}
