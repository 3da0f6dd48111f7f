package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/websocket"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// bye is what a backend says on a long-lived connection when it is to end.
const bye = "bye"

// backend answers.
type backend struct {
	name string
	// leaving ends when the backend is to end; what is long-lived then has grace to end.
	leaving context.Context //nolint:containedctx // the handlers' only view of it
	grace   time.Duration
	health  *health.Server
	ready   atomic.Bool
	// delay is before each answer.
	delay time.Duration
	open  sync.WaitGroup
}

func serve(ctx context.Context, args []string) error {
	b := &backend{leaving: ctx, health: health.NewServer()}
	b.ready.Store(true)
	flags := pflag.NewFlagSet("app serve", pflag.ContinueOnError)
	flags.StringVar(&b.name, "name", os.Getenv("HOSTNAME"), `name to answer with; "" is the address that was asked`)
	web := flags.String("http", ":8080", "HTTP/1.1 and WebSocket (/ws); also /ready, /fail, /ok, /not-serving, /exit")
	rpc := flags.String("grpc", ":9090", "gRPC")
	lines := flags.String("tcp", ":9000", "lines of text")
	flags.DurationVar(&b.grace, "grace", 5*time.Second, "how long what is in flight gets after SIGTERM")
	flags.DurationVar(&b.delay, "delay", 0, "before each answer")
	slow := flags.Duration("start-after", 0, "listen only after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	timer := time.NewTimer(*slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		address string
		serve   func(context.Context, net.Listener) error
	}{{*web, b.serveWeb}, {*rpc, b.serveRPC}, {*lines, b.serveLines}} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
		if err != nil {
			return err
		}
		group.Go(func() error { return s.serve(ctx, listener) })
	}
	err := group.Wait()
	b.wait()
	return err
}

// wait waits for what is long-lived, at most for the grace.
func (b *backend) wait() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.open.Wait()
	}()
	timer := time.NewTimer(b.grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		fmt.Fprintln(os.Stderr, "app: the grace is over with connections open")
	}
}

func (b *backend) serveWeb(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/", b.answer)
	mux.HandleFunc("/ready", b.answerReady)
	mux.HandleFunc("/fail", func(http.ResponseWriter, *http.Request) { b.ready.Store(false) })
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) { b.ready.Store(true) })
	mux.HandleFunc("/not-serving", func(http.ResponseWriter, *http.Request) { b.health.Shutdown() })
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.Handle("/ws", websocket.Server{Handler: b.socket})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return until(ctx, b.grace, func() error { return server.Serve(listener) }, server.Shutdown)
}

// until serves until ctx ends, and then has what is in flight end.
func until(ctx context.Context, grace time.Duration, serve func() error, shutdown func(context.Context) error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := shutdown(limit); err != nil {
		fmt.Fprintln(os.Stderr, "app: the grace is over:", err)
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer says who answers, and gives a body back.
func (b *backend) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	b.pause(r.Context())
	name := b.name
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && name == "" {
		name = at.IP.String()
	}
	fmt.Fprintf(w, "%s %s", name, body)
}

func (b *backend) answerReady(w http.ResponseWriter, _ *http.Request) {
	if !b.ready.Load() {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	}
}

func (b *backend) pause(ctx context.Context) {
	if b.delay == 0 {
		return
	}
	timer := time.NewTimer(b.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (b *backend) socket(conn *websocket.Conn) {
	b.converse(func(text string) error { return websocket.Message.Send(conn, text) },
		func() (string, error) { return receive(conn) }, conn.Close)
}

func (b *backend) serveLines(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			in := bufio.NewReader(conn)
			b.converse(func(text string) error { _, err := fmt.Fprintln(conn, text); return err },
				func() (string, error) { line, err := in.ReadString('\n'); return trim(line), err }, conn.Close)
		}()
	}
}

// converse answers each message until the client closes. When the backend is to
// end it says bye once, and goes on answering for the grace.
func (b *backend) converse(send func(string) error, receive func() (string, error), end func() error) {
	b.open.Add(1)
	defer b.open.Done()
	var mu sync.Mutex // guards sending
	say := func(text string) error {
		mu.Lock()
		defer mu.Unlock()
		return send(text)
	}
	stop := context.AfterFunc(b.leaving, func() { _ = say(bye) }) // who does not hear it is gone
	defer stop()
	defer func() { _ = end() }()
	for {
		text, err := receive()
		if err != nil {
			return
		}
		b.pause(b.leaving)
		if say(b.name+" "+text) != nil {
			return
		}
	}
}

func (b *backend) serveRPC(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&chatDesc, b)
	healthgrpc.RegisterHealthServer(server, b.health)
	return until(ctx, b.grace, func() error { return server.Serve(listener) }, func(ctx context.Context) error {
		b.health.Shutdown()
		defer context.AfterFunc(ctx, server.Stop)()
		server.GracefulStop()
		return ctx.Err()
	})
}

func (b *backend) say(ctx context.Context, text string) (string, error) { //nolint:unparam // a gRPC method
	b.pause(ctx)
	return b.name + " " + text, nil
}

func (b *backend) chat(stream grpc.ServerStream) error { //nolint:unparam // a gRPC method
	b.converse(func(text string) error { return stream.SendMsg(wrapperspb.String(text)) },
		func() (string, error) {
			var in wrapperspb.StringValue
			err := stream.RecvMsg(&in)
			return in.GetValue(), err
		}, func() error { return nil })
	return nil
}

func trim(line string) string {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}

func receive(conn *websocket.Conn) (string, error) {
	var text string
	err := websocket.Message.Receive(conn, &text)
	return text, err
}
