package proxy_test

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// BenchmarkRelay relays a small GET; its peer in the same run is net/http's own
// ReverseProxy, and direct is the cost of client and backend alone.
func BenchmarkRelay(b *testing.B) {
	for _, h2 := range []bool{false, true} {
		proto := map[bool]string{false: "http1", true: "http2"}[h2]
		b.Run(proto, func(b *testing.B) {
			backend := benchServer(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
			reverse := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
			reverse.Transport = transport(h2)
			peer := benchServer(b, reverse)
			r := newRig(b)
			r.putCluster(&discovery.Cluster{HTTP2: h2}, backend)
			for _, to := range []struct{ name, addr string }{{"direct", backend}, {"reverseproxy", peer}, {"freshmesh", r.addr}} {
				b.Run(to.name, func(b *testing.B) { benchGets(b, to.addr, h2) })
			}
			reverse.Transport.(*http.Transport).CloseIdleConnections()
		})
	}
}

func benchServer(b *testing.B, h http.Handler) string {
	b.Helper()
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return serve(b, &http.Server{Handler: h, Protocols: &p})
}

func benchGets(b *testing.B, addr string, h2 bool) {
	b.Helper()
	tr := transport(h2)
	tr.MaxIdleConnsPerHost = 100
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+addr+"/", nil)
			req.Host = echo
			resp, err := tr.RoundTrip(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				b.Error(resp.Status)
				return
			}
		}
	})
}
