package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane is a control plane as a Server sees it.
type plane struct {
	status    Status
	audit     ack.Audit
	resources []Resource
	err       error
	// What was asked.
	asked []string
}

func (p *plane) Audit(_ context.Context, node mesh.NodeID) (ack.Audit, error) {
	p.asked = append(p.asked, fmt.Sprintf("audit %q", node))
	return p.audit, p.err
}

func (p *plane) Resources(_ context.Context, q Query) ([]Resource, error) {
	p.asked = append(p.asked, fmt.Sprintf("resources %s %q %q", q.Type.Short(), q.Name, q.Node))
	return p.resources, p.err
}

func (p *plane) Resync(_ context.Context, node mesh.NodeID, name string) (int, error) {
	p.asked = append(p.asked, fmt.Sprintf("resync %q %q", node, name))
	return 3, p.err
}

func (p *plane) Status() Status { return p.status }

func newServer(p *plane, pprof bool) *Server {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "freshmesh_test_total"})
	reg.MustRegister(c)
	return New(Config{Auditor: p, Store: p, Resyncer: p, Statuser: p, Gatherer: reg, Pprof: pprof})
}

func do(t *testing.T, s *Server, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w
}

func TestReadyz(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status Status
		code   int
		want   string
	}{
		{
			"not synced",
			Status{ServerStatus: ack.ServerStatus{Source: "kubernetes", SourceReason: "waiting for pods"}},
			503,
			`{"ready":false,"source":"kubernetes","synced":false,"connected":false,"lagSeconds":0,"reason":"waiting for pods","generation":0,"problems":0}`,
		},
		{
			"synced",
			Status{Connected: true, ServerStatus: ack.ServerStatus{Source: "files", Synced: true, Generation: 7, Problems: make([]mesh.Problem, 2)}},
			200,
			`{"ready":true,"source":"files","synced":true,"connected":true,"lagSeconds":0,"generation":7,"problems":2}`,
		},
		{
			"synced and away",
			Status{ServerStatus: ack.ServerStatus{Source: "kubernetes", Synced: true, SourceLagSeconds: 90, SourceReason: "refused"}},
			200,
			`{"ready":true,"source":"kubernetes","synced":true,"connected":false,"lagSeconds":90,"reason":"refused","generation":0,"problems":0}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := do(t, newServer(&plane{status: tt.status}, false), "GET", "/readyz")
			var got bytes.Buffer
			if err := json.Compact(&got, w.Body.Bytes()); err != nil {
				t.Fatal(err)
			}
			if w.Code != tt.code || got.String() != tt.want {
				t.Errorf("%d %s", w.Code, got.String())
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		method, target string
		err            error
		code           int
		asked, body    string
	}{
		{"GET", "/livez", nil, 200, "", `"alive": true`},
		{"HEAD", "/livez", nil, 200, "", ""},
		{"GET", "/metrics", nil, 200, "", "freshmesh_test_total 0"},
		{"GET", "/audit", nil, 200, `audit ""`, `"problems": []`},
		{"GET", "/audit?node=a%26b", nil, 200, `audit "a&b"`, `"nodes": []`},
		{"GET", "/audit?nod=a", nil, 400, "", `parameter \"nod\"`},
		{"GET", "/audit?node=a&node=b", nil, 400, "", "at most once"},
		{"GET", "/audit?node=%zz", nil, 400, "", "query: "},
		{"GET", "/audit", errors.New("broken"), 500, `audit ""`, `"error": "broken"`},
		{"GET", "/audit", fmt.Errorf("ask: %w", context.DeadlineExceeded), 504, `audit ""`, "deadline"},
		{"POST", "/audit", nil, 405, "", "POST is not allowed here"},
		{"GET", "/resources?type=eds&name=x&node=n", nil, 200, `resources eds "x" "n"`, `"resources": []`},
		{"GET", "/resources", nil, 400, "", `type \"\"`},
		{"GET", "/resources?type=xds", nil, 400, "", "one of cds"},
		{"GET", "/resources?type=cds&name=x", fmt.Errorf("resource x: %w", ErrNotFound), 404, `resources cds "x" ""`, "resource x: not found"},
		{"POST", "/resync?node=n&name=x", nil, 200, `resync "n" "x"`, `"nodes": 3`},
		{"POST", "/resync", nil, 200, `resync "" ""`, `"nodes": 3`},
		{"POST", "/resync?nodes=n", nil, 400, "", "parameter"},
		{"POST", "/resync?node=n", fmt.Errorf("node n: %w", ErrNotFound), 404, `resync "n" ""`, "node n: not found"},
		{"GET", "/resync", nil, 405, "", "GET is not allowed"},
		{"DELETE", "/", nil, 405, "", "DELETE is not allowed"},
		{"GET", "/debug/pprof/", nil, 404, "", "no such path"},
		{"GET", "/nothing", nil, 404, "", "no such path: /nothing"},
		{"GET", "/?refresh=soon", nil, 400, "", "refresh"},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			p := &plane{err: tt.err}
			w := do(t, newServer(p, false), tt.method, tt.target)
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) || strings.Join(p.asked, "; ") != tt.asked {
				t.Errorf("%d, asked %q, %s", w.Code, p.asked, w.Body)
			}
			if w.Code >= 400 {
				var f Failure
				if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || f.Error == "" || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("no JSON error: %s", w.Body)
				}
			}
			if allow := w.Header().Get("Allow"); (w.Code == 405) != (allow != "") {
				t.Errorf("Allow %q", allow)
			}
		})
	}
}

func TestForeignPagesMustNotPost(t *testing.T) {
	p := &plane{}
	w := do(t, newServer(p, false), "POST", "/resync", "Sec-Fetch-Site", "cross-site")
	if w.Code != 403 || p.asked != nil {
		t.Errorf("%d, asked %v", w.Code, p.asked)
	}
}

func TestPprofIsOptional(t *testing.T) {
	if w := do(t, newServer(&plane{}, true), "GET", "/debug/pprof/"); w.Code != 200 || !strings.Contains(w.Body.String(), "goroutine") {
		t.Errorf("%d", w.Code)
	}
}

func TestResourceBodies(t *testing.T) {
	good, err := proto.Marshal(&clusterv3.Cluster{Name: "echo", LbPolicy: clusterv3.Cluster_RING_HASH})
	if err != nil {
		t.Fatal(err)
	}
	bad := []byte{0xff, 0xff}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &plane{resources: []Resource{
		{Name: "bad", Version: "v1", ChangedAt: at, Body: bad},
		{Name: "echo", Version: "v2", ChangedAt: at, Cause: "Service default/echo", Body: good},
	}}
	ask := func(typ string) Resources {
		w := do(t, newServer(p, false), "GET", "/resources?type="+typ)
		var got Resources
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := ask("cds")
	if got.TypeURL != mesh.TypeCluster || got.Type != "cds" || len(got.Resources) != 2 {
		t.Fatalf("%+v", got)
	}
	if r := got.Resources[0]; r.Body != nil || !bytes.Equal(r.BodyBase64, bad) || r.Undecoded == "" {
		t.Errorf("undecodable: %+v", r)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, got.Resources[1].Body); err != nil {
		t.Fatal(err)
	}
	got.Resources[1].Body = nil
	if d := cmp.Diff(Shown{Name: "echo", Version: "v2", ChangedAt: at, Cause: "Service default/echo"}, got.Resources[1]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if body.String() != `{"name":"echo","lbPolicy":"RING_HASH"}` {
		t.Errorf("body %s", body.String())
	}
	if r := ask("type.googleapis.com/nobody.knows.This").Resources[1]; base64.StdEncoding.EncodeToString(r.BodyBase64) == "" || !strings.Contains(r.Undecoded, "find message type") {
		t.Errorf("unknown type: %+v", r)
	}
}

func trouble() ack.Audit {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	confirmed := now.Add(-3 * time.Second)
	return ack.Audit{
		Time:    now,
		Server:  ack.ServerStatus{Instance: "xds-0", Synced: true, SourceReason: "refused", Problems: []mesh.Problem{{Object: "Service default/x", Reason: "odd"}}},
		Summary: ack.Summary{Nodes: 2, Fresh: 1, Rejected: 1},
		Nodes: []ack.Node{
			{ID: "a-fresh", State: ack.Fresh, ConfirmedAt: &confirmed},
			{ID: "z<script>", State: ack.Rejected, Types: []ack.TypeState{{
				Type: "cds", Nack: &ack.Nack{Message: "no <b>", At: now.Add(-time.Minute), Resources: []string{"echo"}},
				BehindResources: []ack.BehindResource{{Name: "echo", Current: "v2", ChangedAt: now.Add(-2 * time.Minute), Cause: "Service default/echo"}},
			}}, History: []ack.Event{{At: now, Event: "rejected", Type: "cds"}}},
		},
	}
}

func TestPage(t *testing.T) {
	p := &plane{audit: trouble()}
	w := do(t, newServer(p, false), "GET", "/?refresh=5")
	page := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", w.Code, page)
	}
	for _, want := range []string{
		`content="5"`, "2 nodes:", `class="state rejected"`, "3s ago", "never", "Service default/x", "no &lt;b&gt;", "z&lt;script&gt;",
		`href="?node=z%3cscript%3e"`, "has not been reached",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "ZgotmplZ") {
		t.Error("unescaped")
	}
	if strings.Index(page, "z&lt;script") > strings.Index(page, "a-fresh") {
		t.Error("trouble does not come first")
	}
	one := do(t, newServer(p, false), "GET", "/?node=z%3Cscript%3E").Body.String()
	if !strings.Contains(one, "holds nothing, current v2, Service default/echo 2m0s ago") || !strings.Contains(one, "History") || p.asked[1] != `audit "z<script>"` {
		t.Errorf("one node: %v\n%s", p.asked, one)
	}
	if empty := do(t, newServer(&plane{}, false), "GET", "/").Body.String(); !strings.Contains(empty, "No node has connected") || !strings.Contains(empty, "has not synced") {
		t.Errorf("empty:\n%s", empty)
	}
}

// The real listener, and the client against it.
func TestServe(t *testing.T) {
	l, err := testaddr.Listen(t.Context(), testaddr.Free(t, "127.0.0.1")) // the next on port 0 may get that of one who has left
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := &plane{audit: trouble()}
	done := make(chan error, 1)
	go func() { done <- newServer(p, false).Serve(ctx, l) }()
	var stdout, stderr bytes.Buffer
	if code := audit.Run(t.Context(), audit.Options{Servers: []string{l.Addr().String()}}, &stdout, &stderr); code != audit.ExitNotFresh || stderr.Len() != 0 {
		t.Errorf("audit: %d %s %s", code, &stdout, &stderr)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("still listening")
		_ = conn.Close()
	}
	_ = l.Close()
	if err := newServer(p, false).Serve(t.Context(), l); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
}

// Filters that freshmesh itself never makes are shown all the same.
func TestResourcesDecodeEnvoysFilters(t *testing.T) {
	// A TypedExtensionConfig of an HTTP filter, written by hand: name, then an Any of a Lua filter.
	packed := protowire.AppendTag(nil, 1, protowire.BytesType)
	packed = protowire.AppendString(packed, "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua")
	body := protowire.AppendTag(nil, 1, protowire.BytesType)
	body = protowire.AppendString(body, "script")
	body = protowire.AppendTag(body, 2, protowire.BytesType)
	body = protowire.AppendBytes(body, packed)
	r := show("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", Resource{Name: "script", Body: body})
	if r.Undecoded != "" || !strings.Contains(string(r.Body), "lua.v3.Lua") {
		t.Errorf("%s, %q", r.Body, r.Undecoded)
	}
}
