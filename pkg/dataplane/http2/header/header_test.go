package header

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

var limits = Limits{Bytes: 4096, Fields: 40}

// list is written as "name: value" lines.
func list(lines ...string) []hpack.HeaderField {
	var all []hpack.HeaderField
	for _, l := range lines {
		i := strings.Index(l[1:], ":") + 1
		all = append(all, hpack.HeaderField{Name: l[:i], Value: strings.TrimPrefix(l[i+1:], " ")})
	}
	return all
}

// encoded is a block as x/net writes it.
func encoded(t testing.TB, all []hpack.HeaderField) []byte {
	t.Helper()
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for _, f := range all {
		if err := e.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return []byte(b.String())
}

func get(more ...string) []hpack.HeaderField {
	return list(append([]string{":method: GET", ":scheme: http", ":authority: a", ":path: /"}, more...)...)
}

// TestRequests goes through RFC 9113 section 8 and RFC 8441 section 4.
func TestRequests(t *testing.T) {
	tests := []struct {
		name string
		in   []hpack.HeaderField
		want error // of Malformed; nil for none
	}{
		{"plain", get("x: y"), nil},
		{"options of everything", list(":method: OPTIONS", ":scheme: http", ":authority: a", ":path: *"), nil},
		{"host for authority", list(":method: GET", ":scheme: http", ":path: /", "host: a"), nil},
		{"host as authority", get("host: A"), nil},
		{"te trailers", get("te: trailers"), nil},
		{"connect", list(":method: CONNECT", ":authority: a:80"), nil},
		{"extended connect", list(":method: CONNECT", ":protocol: websocket", ":scheme: http", ":path: /", ":authority: a"), nil},
		{"value with tab and obs-text", get("x: a\tb\xff"), nil},

		{"capital in name", get("X: y"), errName},
		{"space in name", get("x y: z"), errName},
		{"control in name", get("x\x01: z"), errName},
		{"colon in name", []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: "a:b", Value: "c"}}, errName},
		{"empty name", append(get(), hpack.HeaderField{Value: "x"}), errName},
		{"NUL in value", get("x: a\x00b"), errValue},
		{"CR in value", get("x: a\rb"), errValue},
		{"LF in value", get("x: a\nb"), errValue},
		{"DEL in value", get("x: a\x7fb"), errValue},
		{"space before value", append(get(), hpack.HeaderField{Name: "x", Value: " y"}), errValue},
		{"space after value", append(get(), hpack.HeaderField{Name: "x", Value: "y\t"}), errValue},
		{"LF in path", list(":method: GET", ":scheme: http", ":authority: a", ":path: /\n"), errValue},
		{"connection", get("connection: close"), errForbidden},
		{"keep-alive", get("keep-alive: 1"), errForbidden},
		{"proxy-connection", get("proxy-connection: x"), errForbidden},
		{"transfer-encoding", get("transfer-encoding: chunked"), errForbidden},
		{"upgrade", get("upgrade: h2c"), errForbidden},
		{"te", get("te: gzip"), errTE},
		{"te and more", get("te: trailers, gzip"), errTE},
		{"pseudo after regular", append(get("x: y"), hpack.HeaderField{Name: ":method", Value: "GET"}), errPseudo},
		{"pseudo twice", get(":path: /"), errPseudo},
		{"unknown pseudo", get(":proto: x"), errPseudo},
		{"status in request", get(":status: 200"), errPseudo},
		{"no method", list(":scheme: http", ":authority: a", ":path: /"), errMethod},
		{"empty method", list(":method: ", ":scheme: http", ":authority: a", ":path: /"), errMethod},
		{"method is no token", list(":method: GE T", ":scheme: http", ":authority: a", ":path: /"), errMethod},
		{"no scheme", list(":method: GET", ":authority: a", ":path: /"), errMissing},
		{"no path", list(":method: GET", ":scheme: http", ":authority: a"), errMissing},
		{"empty path", list(":method: GET", ":scheme: http", ":authority: a", ":path: "), errPath},
		{"relative path", list(":method: GET", ":scheme: http", ":authority: a", ":path: a"), errPath},
		{"absolute path", list(":method: GET", ":scheme: http", ":authority: a", ":path: http://b/"), errPath},
		{"space in path", list(":method: GET", ":scheme: http", ":authority: a", ":path: /a b"), errPath},
		{"fragment", list(":method: GET", ":scheme: http", ":authority: a", ":path: /a#b"), errPath},
		{"star for GET", list(":method: GET", ":scheme: http", ":authority: a", ":path: *"), errPath},
		{"bad scheme", list(":method: GET", ":scheme: 1:/", ":authority: a", ":path: /"), errScheme},
		{"no authority", list(":method: GET", ":scheme: http", ":path: /"), errMissing},
		{"user information", list(":method: GET", ":scheme: http", ":authority: u@a", ":path: /"), errAuthority},
		{"space in authority", list(":method: GET", ":scheme: http", ":authority: a b", ":path: /"), errAuthority},
		{"slash in authority", list(":method: GET", ":scheme: http", ":authority: a/b", ":path: /"), errAuthority},
		{"other host", get("host: b"), errHost},
		{"host twice", get("host: a", "host: a"), errHost},
		{"connect with path", list(":method: CONNECT", ":authority: a:80", ":path: /"), errConnect},
		{"connect with scheme", list(":method: CONNECT", ":authority: a:80", ":scheme: http"), errConnect},
		{"connect without authority", list(":method: CONNECT", "host: a:80"), errHost},
		{"protocol without connect", get(":protocol: websocket"), errConnect},
		{"extended connect without path", list(":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: a"), errMissing},
		{"length twice", get("content-length: 1", "content-length: 1"), errLength},
		{"length with sign", get("content-length: +1"), errLength},
		{"length of nothing", get("content-length: "), errLength},
		{"length list", get("content-length: 1, 1"), errLength},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(limits)
			var r message.Request
			_, err := d.Request(encoded(t, tt.in), &r)
			if tt.want == nil && err != nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				if _, ok := errors.AsType[*Malformed](err); !ok {
					t.Errorf("%v is not of one stream alone", err)
				}
				// The state is in step all the same.
				if _, err := d.Request(encoded(t, get()), &r); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestResponses(t *testing.T) {
	tests := []struct {
		name string
		in   []hpack.HeaderField
		want error
	}{
		{"plain", list(":status: 200", "x: y"), nil},
		{"interim", list(":status: 103", "link: y"), nil},
		{"no status", list("x: y"), errMissing},
		{"switching protocols", list(":status: 101"), errStatus},
		{"two digits", list(":status: 99"), errStatus},
		{"four digits", list(":status: 0200"), errStatus},
		{"status twice", list(":status: 200", ":status: 200"), errPseudo},
		{"method", list(":method: GET"), errPseudo},
		{"connection", list(":status: 200", "connection: close"), errForbidden},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r message.Response
			if err := NewDecoder(limits).Response(encoded(t, tt.in), &r); !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
		})
	}
}

func TestTrailers(t *testing.T) {
	d := NewDecoder(limits)
	got, err := d.Trailers(encoded(t, list("grpc-status: 0", "content-length: 3", "host: x")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]message.Field{{Name: "grpc-status", Value: "0"}}, got); diff != "" {
		t.Errorf("trailers that frame or route (-want +got):\n%s", diff)
	}
	if _, err := d.Trailers(encoded(t, list(":status: 200")), nil); !errors.Is(err, errTrailerList) {
		t.Errorf("a pseudo-header field in trailers: %v", err)
	}
}

// TestTooLarge: lists over the limits are told, bombs cost no memory, and the state stays in step.
func TestTooLarge(t *testing.T) {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	write := func(all []hpack.HeaderField) []byte {
		b.Reset()
		for _, f := range all {
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		return []byte(b.String())
	}
	d := NewDecoder(limits)
	var r message.Request
	big := hpack.HeaderField{Name: "bomb", Value: strings.Repeat("x", 2000)}
	if _, err := d.Request(write(append(get(), big)), &r); err != nil {
		t.Fatal(err)
	}
	bomb := get()
	for range 10_000 {
		bomb = append(bomb, big)
	}
	block := write(bomb)
	if _, err := d.Request(block, &r); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("20 MB of fields in a block of %d bytes: %v", len(block), err)
	}
	if len(r.Fields) > limits.Fields {
		t.Errorf("%d fields were kept", len(r.Fields))
	}
	many := get()
	for range limits.Fields {
		many = append(many, hpack.HeaderField{Name: "a"})
	}
	if _, err := d.Request(write(many), &r); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d fields: %v", len(many), err)
	}
	if _, err := d.Request(write(append(get(), big)), &r); err != nil || r.Fields[0].Value != big.Value {
		t.Errorf("after them: %v", err)
	}
}

func TestCompressionErrors(t *testing.T) {
	for name, block := range map[string][]byte{
		"index beyond the table": {0xff, 0x20},
		"index 0":                {0x80},
		"cut":                    {0x40, 0x05, 'a'},
		"table too large":        {0x3f, 0xff, 0xff, 0x7f},
		"bad Huffman":            {0x40, 0x81, 0x00, 0x81, 0x00},
	} {
		var r message.Request
		_, err := NewDecoder(limits).Request(block, &r)
		if _, ok := errors.AsType[*Malformed](err); err == nil || ok || errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v is not the connection's", name, err)
		}
	}
}

func TestCredentialsAreNeverIndexed(t *testing.T) {
	e := NewEncoder()
	fields := []message.Field{{Name: "authorization", Value: "secret-of-one-client", Sensitive: true}}
	for range 3 {
		block := e.AppendTrailers(nil, fields)
		if !strings.Contains(string(block), "secret-of-one-client") {
			t.Fatal("a credential came out of a table")
		}
		var got []hpack.HeaderField
		d := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) { got = append(got, f) })
		if _, err := d.Write(block); err != nil || !got[0].Sensitive {
			t.Fatalf("%v %v: not marked as never indexed", got, err)
		}
	}
	d := NewDecoder(limits)
	var r message.Request
	if _, err := d.Request(encoded(t, get("cookie: a=b", "authorization: x", "x: y")), &r); err != nil {
		t.Fatal(err)
	}
	want := []message.Field{{Name: "cookie", Value: "a=b", Sensitive: true}, {Name: "authorization", Value: "x", Sensitive: true}, {Name: "x", Value: "y"}}
	if diff := cmp.Diff(want, r.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// TestRoundTrip: whatever the encoder writes, under table sizes that change, x/net reads as it was.
func TestRoundTrip(t *testing.T) {
	word := rapid.StringMatching(`[a-c]{1,3}`)
	long := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 3000, -1)
	rapid.Check(t, func(t *rapid.T) {
		var got []message.Field
		d := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) {
			got = append(got, message.Field{Name: f.Name, Value: f.Value, Sensitive: f.Sensitive})
		})
		e := NewEncoder()
		for range rapid.IntRange(1, 60).Draw(t, "blocks") {
			if rapid.IntRange(0, 9).Draw(t, "resize") == 0 {
				size := rapid.Uint32Range(0, 2*TableSize).Draw(t, "size")
				e.SetTableSize(size)
			}
			var want []message.Field
			for range rapid.IntRange(1, 8).Draw(t, "fields") {
				f := message.Field{Name: word.Draw(t, "name"), Value: word.Draw(t, "value"), Sensitive: rapid.IntRange(0, 9).Draw(t, "sensitive") == 0}
				switch rapid.IntRange(0, 20).Draw(t, "kind") {
				case 0:
					f.Value = long.Draw(t, "long")
				case 1:
					f.Name = long.Draw(t, "long name") + "x"
				case 2:
					p := static[rapid.IntRange(0, len(static)-1).Draw(t, "static")]
					f.Name, f.Value = p.name, p.value
				}
				want = append(want, f)
			}
			got = nil
			block := e.AppendTrailers(nil, want)
			if _, err := d.Write(block); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if e.size > e.limit {
				t.Fatalf("the table has %d bytes of %d", e.size, e.limit)
			}
		}
	})
}

// TestSteadyBlocks: what comes again and again is an index each, whatever the
// seed of the encoder's hashes.
func TestSteadyBlocks(t *testing.T) {
	for range 200 {
		steadyBlocks(t, NewEncoder())
	}
}

func steadyBlocks(t *testing.T, e *Encoder) {
	t.Helper()
	r := &message.Request{
		Method: "POST", Scheme: "http", Authority: "echo.default:8080", Path: "/grpc.testing.TestService/UnaryCall",
		Fields: []message.Field{{Name: "content-type", Value: "application/grpc"}, {Name: "user-agent", Value: "grpc-go/1.85.0"}, {Name: "te", Value: "trailers"}},
	}
	for range 2 {
		_ = e.AppendRequest(nil, r)
	}
	block := e.AppendRequest(nil, r)
	if len(block) != 7 {
		t.Errorf("7 fields take %d bytes", len(block))
	}
	if n := testing.AllocsPerRun(100, func() { block = e.AppendRequest(block[:0], r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	d := NewDecoder(limits)
	x := NewEncoder()
	var got message.Request
	for range 3 {
		block = x.AppendRequest(block[:0], r)
		if _, err := d.Request(block, &got); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = d.Request(block, &got) }); n != 0 {
		t.Errorf("%v allocations to read", n)
	}
	r.Length = -1
	if diff := cmp.Diff(*r, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// FuzzTranslate: no block breaks the decoder; what it accepts, written anew, is read as the same.
func FuzzTranslate(f *testing.F) {
	f.Add(encoded(f, get("x: y", "cookie: a", "te: trailers", "content-length: 3")), uint8(0))
	f.Add(encoded(f, list(":status: 200", "x: y")), uint8(1))
	f.Add(encoded(f, list("grpc-status: 0")), uint8(2))
	f.Add(encoded(f, list(":method: CONNECT", ":authority: a:80")), uint8(0))
	f.Fuzz(func(t *testing.T, block []byte, k uint8) {
		d, again, e := NewDecoder(limits), NewDecoder(limits), NewEncoder()
		for range 3 {
			switch kind(k % 3) {
			case requestList:
				var a, b message.Request
				grpc, err := d.Request(block, &a)
				if err != nil {
					return
				}
				same, err := again.Request(e.AppendRequest(nil, &a), &b)
				if err != nil || grpc != same || !cmp.Equal(a, b) {
					t.Fatalf("%v\nread  %#v\nagain %#v", err, a, b)
				}
			case responseList:
				var a, b message.Response
				if d.Response(block, &a) != nil {
					return
				}
				if err := again.Response(e.AppendResponse(nil, &a), &b); err != nil || !cmp.Equal(a, b) {
					t.Fatalf("%v\nread  %#v\nagain %#v", err, a, b)
				}
			case trailerList:
				a, err := d.Trailers(block, nil)
				if err != nil {
					return
				}
				b, err := again.Trailers(e.AppendTrailers(nil, a), nil)
				if err != nil || !cmp.Equal(a, b) {
					t.Fatalf("%v\nread  %#v\nagain %#v", err, a, b)
				}
			}
		}
	})
}
