package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
)

const (
	// graceTime is how long requests may take once the backend is to stop.
	graceTime = time.Second
	// endpointHeader carries the name and the address of the endpoint that answered.
	endpointHeader = "x-endpoint"
	maxBodyBytes   = 1 << 20
)

// backend is one endpoint.
type backend struct {
	name, address string
	lines         string // "" for none
}

// run serves until ctx ends, and then lets requests finish for graceTime.
func (b backend) run(ctx context.Context) error {
	var config net.ListenConfig
	web, err := config.Listen(ctx, "tcp", b.address)
	if err != nil {
		return err
	}
	b.address = web.Addr().String()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.serveWeb(ctx, web) })
	if b.lines != "" {
		lines, err := config.Listen(ctx, "tcp", b.lines)
		if err != nil {
			web.Close()
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error { return b.serveLines(ctx, lines) })
	}
	return group.Wait()
}

// String gives "NAME ADDRESS".
func (b backend) String() string { return b.name + " " + b.address }

func (b backend) serveWeb(ctx context.Context, listener net.Listener) error {
	rpc := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := grpc.SetHeader(ctx, metadata.Pairs(endpointHeader, b.String())); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}))
	healthgrpc.RegisterHealthServer(rpc, health.NewServer())
	reflection.Register(rpc) // so that grpcurl knows what there is to call
	server := http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Protocols:         new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			b.answer(w, r)
		}),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer says who answered, in one line, and then gives the request's body back.
func (b backend) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set(endpointHeader, b.String())
	fmt.Fprintf(w, "%s %s %s %s%s\n%s", b, r.Proto, r.Method, r.Host, r.URL.RequestURI(), body)
}

func (b backend) serveLines(ctx context.Context, listener net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			// An error is the peer's going away, or ours.
			for in := bufio.NewScanner(conn); in.Scan(); {
				if _, err := fmt.Fprintf(conn, "%s %s: %s\n", b.name, conn.LocalAddr(), in.Text()); err != nil {
					return
				}
			}
		})
	}
}
