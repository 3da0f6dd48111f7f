package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// seen is what a reader made of one message: what two readers must agree on.
type seen struct {
	Line     string
	Host     string
	Fields   []string
	Body     string
	Trailers []string
	Close    bool
	// Rest is how many bytes are left after it.
	Rest int
}

// ours reads one request from data, its body too.
func ours(data []byte) (seen, *Request, error) {
	var r Request
	data = bytes.Clone(data) // chunked bodies are decoded in place
	n, err := r.Parse(data, Limits{})
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return seen{}, nil, err
	}
	s := seen{
		Line: fmt.Sprintf("%s %s HTTP/1.%d", r.Method, r.Path, r.Minor), Host: r.Authority, Close: r.Close,
		Fields: sorted(r.Fields),
	}
	s.Body, s.Trailers, s.Rest, err = oursBody(data[n:], r.Length, r.Chunked)
	return s, &r, err
}

func oursBody(data []byte, length int64, chunked bool) (string, []string, int, error) {
	switch {
	case chunked:
		var c Chunked
		var body strings.Builder
		for {
			// A byte at a time, and then more, so that every boundary is met.
			size := min(len(data), 1+body.Len()%7)
			part, used, done, err := c.Decode(data[:size:size])
			body.Write(part)
			data = data[used:]
			switch {
			case err != nil:
				return "", nil, 0, err
			case done:
				return body.String(), sorted(c.Trailers()), len(data), nil
			case len(data) == 0:
				return "", nil, 0, io.ErrUnexpectedEOF
			}
		}
	case length < 0:
		return string(data), nil, 0, nil
	case length > int64(len(data)):
		return "", nil, 0, io.ErrUnexpectedEOF
	}
	return string(data[:length]), nil, len(data) - int(length), nil
}

// theirs reads one request as net/http's server does.
func theirs(data []byte) (seen, error) {
	in := bytes.NewReader(data)
	b := bufio.NewReader(in)
	r, err := http.ReadRequest(b)
	if err != nil {
		return seen{}, err
	}
	all := wholeHeader(data)
	hosts := all["Host"]
	switch {
	case r.ProtoMajor != 1:
		return seen{}, fmt.Errorf("version %s", r.Proto)
	case r.ProtoMinor >= 1 && len(hosts) == 0 && r.Method != http.MethodConnect:
		return seen{}, fmt.Errorf("no host")
	case len(hosts) == 1 && !httpguts.ValidHostHeader(hosts[0]):
		return seen{}, fmt.Errorf("host")
	}
	for k, vv := range r.Header {
		for _, v := range vv {
			if !httpguts.ValidHeaderFieldName(k) || !httpguts.ValidHeaderFieldValue(v) {
				return seen{}, fmt.Errorf("field %q", k)
			}
		}
	}
	path := r.RequestURI
	if r.URL.Scheme != "" {
		path = path[len("http://")+len(r.URL.Host):]
		if path == "" && r.Method == http.MethodOptions {
			path = "*"
		} else if path == "" {
			path = "/"
		}
	}
	if r.Method == http.MethodConnect {
		path = ""
	}
	s := seen{
		Line: fmt.Sprintf("%s %s HTTP/1.%d", r.Method, path, r.ProtoMinor), Host: r.Host,
		Fields: theirFields(r.Header, all["Connection"], r.ProtoMinor), Close: r.Close,
	}
	body, err := io.ReadAll(r.Body)
	s.Body, s.Trailers, s.Rest = string(body), theirFields(r.Trailer, nil, 1), b.Buffered()+in.Len()
	return s, err
}

// wholeHeader reads the fields again, for net/http takes Host out, and Connection where it says close.
func wholeHeader(data []byte) textproto.MIMEHeader {
	b := textproto.NewReader(bufio.NewReader(bytes.NewReader(data)))
	_, _ = b.ReadLine()
	h, _ := b.ReadMIMEHeader()
	return h
}

// theirFields gives a header as ours would be.
func theirFields(h http.Header, connection []string, minor int) []string {
	named := map[string]bool{}
	for _, v := range connection {
		for token := range strings.SplitSeq(v, ",") {
			named[strings.ToLower(strings.Trim(token, " \t"))] = true
		}
	}
	delete(named, "content-length")
	var all []message.Field
	for k, vv := range maps.All(h) {
		name := strings.ToLower(k)
		if ofConnection(name) && name != "content-length" || named[name] || name == "expect" && minor == 0 {
			continue
		}
		for _, v := range vv {
			all = append(all, message.Field{Name: name, Value: v})
		}
	}
	return sorted(all)
}

func sorted(fields []message.Field) []string {
	var all []string
	for _, f := range fields {
		// What net/http adds on reading, and takes out where it announces trailers.
		if f.Name == "cache-control" && f.Value == "no-cache" || f.Name == "trailer" {
			continue
		}
		all = append(all, strings.Clone(f.Name)+": "+strings.Trim(f.Value, " \t"))
	}
	slices.Sort(all)
	return all
}

// agree fails the test where ours accepts what theirs does not, or in another way.
func agree(t *testing.T, data []byte) (seen, *Request, bool) {
	t.Helper()
	got, r, err := ours(data)
	if err != nil {
		return got, nil, false
	}
	want, err := theirs(data)
	if err != nil {
		t.Fatalf("accepted, but net/http says: %v\n%q", err, data)
	}
	// A Connection of HTTP/1.0 that says both is closed by us; more is not less.
	want.Close = want.Close || got.Close && r.Minor == 0
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("read differently:\n ours %+v\n http %+v\n%q", got, want, data)
	}
	return got, r, true
}
