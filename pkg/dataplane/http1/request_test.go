package http1

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// What is refused, each for its one flaw; with the flaw mended it is accepted.
func TestRequestRefused(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	for name, c := range map[string]struct {
		text string
		want *Error
	}{
		"bare LF after the request line":     {"GET / HTTP/1.1\nHost: a\r\n\r\n", errBareLF},
		"bare LF after a field":              {"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", errBareLF},
		"bare LF at the end":                 {"GET / HTTP/1.1\r\nHost: a\n\n", errBareLF},
		"bare CR in a value":                 {"GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n", errFieldValue},
		"CR CR LF":                           {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\r\n\r\n", errFieldValue},
		"empty line first":                   {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", errRequestLine},
		"obs-fold":                           {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", errFold},
		"obs-fold with a tab":                {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n", errFold},
		"obs-fold as the first line":         {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", errFold},
		"space before the colon":             {"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", errFieldName},
		"tab before the colon":               {"GET / HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n", errFieldName},
		"no name":                            {"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", errFieldName},
		"no colon":                           {"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", errFieldName},
		"NUL in a name":                      {"GET / HTTP/1.1\r\nHost: a\r\nX\x00: b\r\n\r\n", errFieldName},
		"NUL in a value":                     {"GET / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\n\r\n", errFieldValue},
		"DEL in a long value":                {"GET / HTTP/1.1\r\nHost: a\r\nX: bbbbbbbbbbbbbbbbbbbbb\x7fc\r\n\r\n", errFieldValue},
		"high byte in a name":                {"GET / HTTP/1.1\r\nHost: a\r\nX\xe9: b\r\n\r\n", errFieldName},
		"two spaces in the request line":     {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"tab in the request line":            {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", errRequestLine},
		"space after the version":            {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", errRequestLine},
		"no version":                         {"GET /\r\nHost: a\r\n\r\n", errRequestLine},
		"no target":                          {"GET HTTP/1.1\r\nHost: a\r\n\r\n", errRequestLine},
		"no method":                          {" / HTTP/1.1\r\nHost: a\r\n\r\n", errMethod},
		"space in the target":                {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"NUL in the target":                  {"GET /a\x00b HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"broken escape in the target":        {"GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"relative target":                    {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"star with GET":                      {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"version 1.2":                        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", errVersion},
		"version 2.0":                        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", errVersion},
		"version in small letters":           {"GET / http/1.1\r\nHost: a\r\n\r\n", errVersion},
		"no Host":                            {"GET / HTTP/1.1\r\nX: a\r\n\r\n", errNoHost},
		"two Hosts":                          {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", errManyHosts},
		"two equal Hosts":                    {"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", errManyHosts},
		"a path in Host":                     {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", errHost},
		"a user in Host":                     {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", errHost},
		"a space in Host":                    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", errHost},
		"absolute form and another Host":     {"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", errHostConflict},
		"absolute form with a user":          {"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"absolute form without a path":       {"GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"absolute form without a host":       {"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"absolute form with a bad port":      {"GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"absolute form of another scheme":    {"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"CONNECT to a path":                  {"CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"CONNECT without a port":             {"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", errTarget},
		"CONNECT and another Host":           {"CONNECT a:1 HTTP/1.1\r\nHost: b:1\r\n\r\n", errHostConflict},
		"CONNECT with a body":                {"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\n", errConnectBody},
		"CL and TE":                          {post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", errLengthCoding},
		"TE and CL":                          {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", errLengthCoding},
		"two CL":                             {post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", errManyLengths},
		"two equal CL":                       {post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", errManyLengths},
		"CL with a list":                     {post + "Content-Length: 5, 5\r\n\r\n", errLength},
		"CL with a plus":                     {post + "Content-Length: +5\r\n\r\n", errLength},
		"CL with a minus":                    {post + "Content-Length: -5\r\n\r\n", errLength},
		"CL in hexadecimal":                  {post + "Content-Length: 0x5\r\n\r\n", errLength},
		"CL with an underscore":              {post + "Content-Length: 1_0\r\n\r\n", errLength},
		"CL empty":                           {post + "Content-Length: \r\n\r\n", errLength},
		"CL of 2^63":                         {post + "Content-Length: 9223372036854775808\r\n\r\n", errLength},
		"CL beyond all numbers":              {post + "Content-Length: 99999999999999999999999999\r\n\r\n", errLength},
		"TE gzip, chunked":                   {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", errCoding},
		"TE chunked, chunked":                {post + "Transfer-Encoding: chunked, chunked\r\n\r\n", errCoding},
		"TE identity":                        {post + "Transfer-Encoding: identity\r\n\r\n", errCoding},
		"TE xchunked":                        {post + "Transfer-Encoding: xchunked\r\n\r\n", errCoding},
		"TE quoted":                          {post + "Transfer-Encoding: \"chunked\"\r\n\r\n", errCoding},
		"TE empty":                           {post + "Transfer-Encoding:\r\n\r\n", errCoding},
		"TE with a parameter":                {post + "Transfer-Encoding: chunked;a=b\r\n\r\n", errCoding},
		"TE twice":                           {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", errCoding},
		"TE twice, once identity":            {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", errCoding},
		"TE with a vertical tab":             {post + "Transfer-Encoding: \x0bchunked\r\n\r\n", errFieldValue},
		"TE with a form feed":                {post + "Transfer-Encoding: chunked\x0c\r\n\r\n", errFieldValue},
		"TE with a no-break space":           {post + "Transfer-Encoding: \xa0chunked\r\n\r\n", errCoding},
		"TE with a NUL":                      {post + "Transfer-Encoding: chunked\x00\r\n\r\n", errFieldValue},
		"TE folded":                          {post + "Transfer-Encoding:\r\n chunked\r\n\r\n", errFold},
		"TE behind a space before the colon": {post + "Transfer-Encoding : chunked\r\n\r\n", errFieldName},
		"TE in HTTP/1.0":                     {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", errCoding10},
		"another expectation":                {post + "Expect: the-unexpected\r\n\r\n", errExpect},
	} {
		t.Run(name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.text), Limits{})
			got, ok := errors.AsType[*Error](err)
			if !ok || got != c.want {
				t.Fatalf("got %d, %v, want %q", n, err, c.want)
			}
		})
	}
}

func TestRequestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		// forwarded is the head that goes upstream.
		forwarded string
	}{
		"as it came": {
			"GET /a?b=%zz&c HTTP/1.1\r\nHost: a.b:80\r\nX-Case: V v \r\naccept:*/*\r\n\r\n",
			"GET /a?b=%zz&c HTTP/1.1\r\nHost: a.b:80\r\nX-Case: V v \r\naccept:*/*\r\n\r\n",
		},
		"hop by hop": {
			"GET / HTTP/1.1\r\nConnection: keep-alive, X-Hop\r\nHost: a\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nProxy-Connection: x\r\nX-Other: 2\r\nx-hop: 3\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Other: 2\r\n\r\n",
		},
		"Connection cannot take Host or the length": {
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: host, content-length\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		},
		"HTTP/1.0": {
			"GET / HTTP/1.0\r\nExpect: 100-continue\r\nX: y\r\n\r\n",
			"GET / HTTP/1.1\r\nhost: \r\nX: y\r\n\r\n",
		},
		"absolute form": {
			"GET HTTP://A:80/x?y HTTP/1.1\r\nX: y\r\nHost: a:80\r\n\r\n",
			"GET /x?y HTTP/1.1\r\nhost: A:80\r\nX: y\r\n\r\n",
		},
		"absolute form of an address": {
			"GET http://[::1]:80 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
			"GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n",
		},
		"star": {
			"OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n",
			"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
		},
		"zeros before the length": {
			"POST / HTTP/1.1\r\nHost: a\r\ncontent-length:  0007 \r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 7\r\n\r\n",
		},
		"chunked": {
			"POST / HTTP/1.1\r\nTransfer-Encoding: \tCHUNKED\t\r\nTE: gzip;q=1 , Trailers\r\nHost: a\r\nTrailer: x\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nTrailer: x\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\r\n",
		},
		"upgrade": {
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: k\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n",
		},
		"upgrade to HTTP/2 is not relayed": {
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.text+"more"), Limits{})
			if err != nil || n != len(c.text) {
				t.Fatalf("Parse: %d, %v", n, err)
			}
			if got := string(r.Append(nil)); got != c.forwarded {
				t.Errorf("got  %q\nwant %q", got, c.forwarded)
			}
			r.Changed = true
			anew := r.Append(nil)
			var again Request
			if _, err := again.Parse(anew, Limits{}); err != nil {
				t.Fatalf("written anew: %q: %v", anew, err)
			}
			if again.Method != r.Method || again.Path != r.Path || again.Authority != r.Authority || again.Length != r.Length ||
				again.Protocol != r.Protocol || len(sorted(again.Fields)) < len(sorted(r.Fields)) {
				t.Errorf("written anew: %+v, want %+v", again.Request, r.Request)
			}
		})
	}
}

func TestRequestMeaning(t *testing.T) {
	for text, want := range map[string]Request{
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":          {Minor: 1, Close: true},
		"GET / HTTP/1.0\r\n\r\n":                                          {Close: true},
		"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n":                {},
		"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n":       {Minor: 1, Expect: true},
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n": {Minor: 1, Chunked: true},
	} {
		var r Request
		if _, err := r.Parse([]byte(text), Limits{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if r.Minor != want.Minor || r.Close != want.Close || r.Expect != want.Expect || r.Chunked != want.Chunked || r.Chunked != (r.Length < 0) {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// A head that has not come whole is no error, whatever is missing.
func TestRequestInParts(t *testing.T) {
	text := "POST /p HTTP/1.1\r\nHost: a\r\nX-Y: z\r\nContent-Length: 3\r\n\r\n"
	for i := range len(text) {
		var r Request
		if n, err := r.Parse([]byte(text[:i]), Limits{}); n != 0 || err != nil {
			t.Fatalf("of %q: %d, %v", text[:i], n, err)
		}
	}
}

func TestRequestLimits(t *testing.T) {
	line := "GET / HTTP/1.1\r\nHost: a\r\n"
	var r Request
	if _, err := r.Parse([]byte(line+strings.Repeat("x: y\r\n", 3)+"\r\n"), Limits{Fields: 4}); err != nil {
		t.Error(err)
	}
	if _, err := r.Parse([]byte(line+strings.Repeat("x: y\r\n", 4)+"\r\n"), Limits{Fields: 4}); !errors.Is(err, errTooManyFields) {
		t.Errorf("fields: %v", err)
	}
	long := line + "x: " + strings.Repeat("y", 100) + "\r\n\r\n"
	if _, err := r.Parse([]byte(long), Limits{Bytes: len(long)}); err != nil {
		t.Error(err)
	}
	if _, err := r.Parse([]byte(long), Limits{Bytes: len(long) - 1}); !errors.Is(err, errHeadTooLarge) {
		t.Errorf("bytes: %v", err)
	}
	if _, err := r.Parse([]byte(long[:90]), Limits{Bytes: 90}); !errors.Is(err, errHeadTooLarge) {
		t.Errorf("what will be too large: %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	request := []byte("POST /a/b HTTP/1.1\r\nHost: a:80\r\nUser-Agent: curl/8\r\nAccept: */*\r\nConnection: keep-alive\r\nX-A: b\r\nContent-Length: 3\r\n\r\n")
	response := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: x\r\nDate: today\r\nTransfer-Encoding: chunked\r\n\r\n")
	body := []byte("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
	var q Request
	var p Response
	var c Chunked
	out := make([]byte, 0, 4096)
	scratch := make([]byte, len(body))
	got := testing.AllocsPerRun(1000, func() {
		if _, err := q.Parse(request, Limits{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Parse(response, q.Method, Limits{}); err != nil {
			t.Fatal(err)
		}
		out = q.Append(out[:0])
		out = p.Append(out[:0], Framing{Chunked: true})
		copy(scratch, body)
		c.Reset()
		if data, _, done, err := c.Decode(scratch); !done || err != nil || !bytes.Equal(data, []byte("hello world")) {
			t.Fatalf("%q %v %v", data, done, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkRequest(b *testing.B) {
	text := []byte("GET /some/path?with=query HTTP/1.1\r\nHost: echo.default.svc.cluster.local:8080\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Language: en\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nCookie: a=b; c=d\r\n\r\n")
	var r Request
	out := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Parse(text, Limits{}); err != nil {
			b.Fatal(err)
		}
		out = r.Append(out[:0])
	}
}
