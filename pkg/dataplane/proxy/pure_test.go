package proxy

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

var names = Names{Namespace: "shop", Domain: "cluster.local"}

func TestAuthority(t *testing.T) {
	for _, c := range []struct{ authority, want string }{
		{"echo", "echo.shop.svc.cluster.local:80"},
		{"echo:8080", "echo.shop.svc.cluster.local:8080"},
		{"echo.default:8080", "echo.default.svc.cluster.local:8080"},
		{"echo.default.svc:8080", "echo.default.svc.cluster.local:8080"},
		{"Echo.Default.svc.cluster.local.:8080", "echo.default.svc.cluster.local:8080"},
		{"db-0.db.default.svc.cluster.local:5432", "db-0.db.default.svc.cluster.local:5432"},
		{"10.1.2.3:80", "10.1.2.3:80"},
		{"[fd00::1]:80", "[fd00::1]:80"},
		{"[fd00::1]", "[fd00::1]:80"},
		{"", ""},
		{":80", ""},
		{"a..b:80", ""},
		{"echo:0", ""},
		{"echo:65536", ""},
		{"echo:+1", ""},
		{"a b", ""},
		{"user@echo", ""},
		{"a:b:c", ""},
		{"fd00::1", ""},
		{strings.Repeat("a", 64), ""},
		{"*", ""},
	} {
		got, err := names.Cluster(c.authority)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q gives %q, %v; want %q", c.authority, got, err, c.want)
		}
	}
}

// A cluster's name is an authority that names the cluster.
func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"echo", "echo.default:8080", "[::1]:80", "a.svc.cluster.local:1", "::", "[", "x@y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		name, err := names.Cluster(authority)
		if err != nil {
			if upstream.ReasonOf(err) != upstream.BadAuthority {
				t.Fatalf("%q: %v", authority, err)
			}
			return
		}
		if strings.ContainsAny(name, " \t\r\n*/@") {
			t.Fatalf("%q gives %q", authority, name)
		}
		again, err := names.Cluster(name)
		if err != nil || again != name {
			t.Fatalf("%q gives %q, which gives %q, %v", authority, name, again, err)
		}
	})
}

// registered are the error types of RFC 9209 section 2.3.
var registered = strings.Fields(`dns_timeout dns_error destination_not_found destination_unavailable destination_ip_prohibited
destination_ip_unroutable connection_refused connection_terminated connection_timeout connection_read_timeout
connection_write_timeout connection_limit_reached tls_protocol_error tls_certificate_error tls_alert_received
http_request_error http_request_denied http_response_incomplete http_response_header_section_size
http_response_header_size http_response_body_size http_response_trailer_section_size http_response_trailer_size
http_response_transfer_coding http_response_content_coding http_response_timeout http_upgrade_failed
http_protocol_error proxy_internal_response proxy_internal_error proxy_configuration_error proxy_loop_detected`)

func TestReasonsAreWords(t *testing.T) {
	known := map[string]bool{}
	for _, r := range registered {
		known[r] = true
	}
	for _, r := range upstream.Reasons() {
		if !known[r.ProxyError()] {
			t.Errorf("%s: %q is not registered", r, r.ProxyError())
		}
		if r.Status() < 400 || r.Status() > 599 || r.GRPC() == codes.OK || r.GRPC() == codes.Unknown {
			t.Errorf("%s: status %d, gRPC %s", r, r.Status(), r.GRPC())
		}
		if strings.Trim(string(r), "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%s is no token", r)
		}
	}
}

func TestGRPCTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"100m": 100 * time.Millisecond, "1S": time.Second, "2H": 2 * time.Hour, "99999999H": 1000 * time.Hour, "5u": 5 * time.Microsecond,
		"": -1, "m": -1, "1": -1, "1x": -1, "-1S": -1, "123456789S": -1,
	} {
		got, ok := grpcTimeout(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %s %v", text, got, ok)
		}
	}
}

func TestBodyIsReadAgain(t *testing.T) {
	for _, size := range []int{10, replayLimit, replayLimit + 1} {
		text := strings.Repeat("x", size-1) + "y"
		b := &body{src: strings.NewReader(text)}
		first := b.next()
		if _, err := io.ReadFull(first, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if got, want := b.replayable(), size <= replayLimit; got != want {
			t.Fatalf("%d bytes: replayable %v", size, got)
		}
		second := b.next()
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errBodyMoved) {
			t.Errorf("the former attempt reads on: %v", err)
		}
		all, err := io.ReadAll(second)
		if b.replayable() && (err != nil || string(all) != text) {
			t.Errorf("%d bytes: second attempt reads %d, %v", size, len(all), err)
		}
		if !b.replayable() && !errors.Is(err, errBodyMoved) {
			t.Errorf("%d bytes: a torso was read: %v", size, err)
		}
	}
	// An attempt that begins with what was kept and goes beyond it.
	text := strings.Repeat("z", 3*replayLimit)
	b := &body{src: strings.NewReader(text)}
	_, _ = io.ReadFull(b.next(), make([]byte, 100))
	second := b.next()
	b.answered()
	if all, err := io.ReadAll(second); err != nil || string(all) != text {
		t.Errorf("%d of %d, %v", len(all), len(text), err)
	}
}

// Connections that came together do not go together.
func TestAbout(t *testing.T) {
	t.Parallel()
	const d = 100 * time.Second
	lowest, highest := about(d), about(d)
	for range 1000 {
		lowest, highest = min(lowest, about(d)), max(highest, about(d))
	}
	if lowest < 90*time.Second || lowest > 92*time.Second || highest < 108*time.Second || highest > 110*time.Second {
		t.Errorf("from %v to %v", lowest, highest)
	}
}
