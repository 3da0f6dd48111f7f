//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// serve is the process of one of our own contenders: it writes its address to stdout and relays until it is told to stop.
func serve(ctx context.Context, s setup, endpoints []string) error {
	name, profile, h2 := s.contenders[0], s.profile, s.speaks().http2()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Println(l.Addr())
	switch name {
	case "relay":
		if h2 {
			return serveRelay2(ctx, l, endpoints)
		}
		return serveRelay(ctx, l, endpoints)
	case "reverseproxy":
		return serveReverseProxy(l, endpoints, h2)
	case "floor":
		return serveFloor(l, endpoints, s.speaks())
	}
	return fmt.Errorf("there is no proxy %q here", name)
}

// stations are the endpoints of our relay with what a balancer keeps.
type stations struct {
	all      []station
	requests prometheus.Counter
	failures prometheus.Counter
	duration prometheus.Observer
}

type station struct {
	pool   *relay.Pool
	active atomic.Int64
}

// pick is least request of two choices.
func (s *stations) pick() *station {
	a, b := &s.all[rand.IntN(len(s.all))], &s.all[rand.IntN(len(s.all))]
	if b.active.Load() < a.active.Load() {
		return b
	}
	return a
}

// Serve implements relay.Handler.
func (s *stations) Serve(x *relay.Exchange) {
	began := time.Now()
	x.SetDeadline(began.Add(15 * time.Second))
	to := s.pick()
	to.active.Add(1)
	defer to.active.Add(-1)
	conn, err := to.pool.Acquire(x.Context())
	if err == nil {
		if _, err = x.Send(conn, 0); err == nil {
			err = x.Relay(nil)
		} else {
			_ = x.Respond(http.StatusBadGateway, nil, err.Error())
		}
	}
	if err != nil {
		s.failures.Inc()
	}
	s.requests.Inc()
	s.duration.Observe(time.Since(began).Seconds())
}

func serveRelay(ctx context.Context, l net.Listener, endpoints []string) error {
	requests, duration := metrics()
	s := &stations{
		all: make([]station, len(endpoints)), requests: requests.WithLabelValues("out", "2xx"),
		failures: requests.WithLabelValues("out", "5xx"), duration: duration.WithLabelValues("out"),
	}
	for i, e := range endpoints {
		at, err := netip.ParseAddrPort(e)
		if err != nil {
			return err
		}
		up := upstream.New(upstream.Config{Address: at})
		s.all[i].pool = relay.NewPool(relay.PoolConfig{Address: at, Dial: func(ctx context.Context) (net.Conn, error) { return up.Dial(ctx) }})
	}
	return accept(l, func(c net.Conn) { relay.NewServer(ctx, relay.Config{Handler: s}, c, nil).Serve() })
}

// accept gives each connection to serve in a goroutine of its own.
func accept(l net.Listener, serve func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go serve(c)
	}
}

// serveReverseProxy is what most Go programs would do.
func serveReverseProxy(l net.Listener, endpoints []string, h2 bool) error {
	var next atomic.Uint64
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	requests, duration := metrics()
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: endpoints[next.Add(1)%uint64(len(endpoints))]})
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{
			MaxIdleConns: 10000, MaxIdleConnsPerHost: 10000, DisableCompression: true, Protocols: &protocols,
			ResponseHeaderTimeout: 15 * time.Second,
		},
		ModifyResponse: func(r *http.Response) error {
			requests.WithLabelValues("out", strconv.Itoa(r.StatusCode/100)+"xx").Inc()
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		p.ServeHTTP(w, r)
		duration.WithLabelValues("out").Observe(time.Since(began).Seconds())
	})
	err := (&http.Server{Handler: counted, Protocols: &protocols, ReadHeaderTimeout: 30 * time.Second}).Serve(l)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// metrics are what our own contenders count.
func metrics() (requests *prometheus.CounterVec, duration *prometheus.HistogramVec) {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bench_requests_total", Help: "Requests."}, []string{"cluster", "code_class"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bench_duration_seconds", Help: "Their durations."}, []string{"cluster"})
}

// serveFloor copies whatever one read gives, and does not look at it; connections are mapped one to one.
func serveFloor(l net.Listener, endpoints []string, p protocol) error {
	var next atomic.Uint64
	return accept(l, func(c net.Conn) {
		defer c.Close() //nolint:errcheck // it is over
		up, err := net.Dial("tcp", endpoints[next.Add(1)%uint64(len(endpoints))])
		if err != nil {
			return
		}
		defer up.Close() //nolint:errcheck // it is over
		if p != http1 {
			// Either side may speak.
			go func() {
				pump(up, c, p)
				_ = up.Close()
			}()
			pump(c, up, p)
			return
		}
		buf := make([]byte, 16<<10)
		for {
			for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
				n, err := way[0].Read(buf)
				if err == nil {
					_, err = way[1].Write(buf[:n])
				}
				if err != nil {
					return
				}
			}
		}
	})
}

// pump copies until the end; opaque bytes do not leave the kernel.
func pump(to, from net.Conn, p protocol) {
	if p == opaque {
		_, _ = io.Copy(to, from)
		return
	}
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 16<<10))
}
