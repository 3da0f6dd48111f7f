package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/freshmesh/freshmesh/test/cluster/app/report"
)

// The service's ports.
const (
	webPort = ":8080"
	rpcPort = ":9090"
)

// dialer gives what opens a conversation of a kind.
func dialer(kind, proxy, host, tcp string, r *recorder) (func(context.Context) (conversation, error), error) {
	switch kind {
	case "http":
		return func(ctx context.Context) (conversation, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
			if err != nil {
				return nil, err
			}
			return &web{conn: conn, in: bufio.NewReader(conn), host: host + webPort}, nil
		}, nil
	case "ws":
		return func(ctx context.Context) (conversation, error) { return dialSocket(ctx, proxy, host+webPort) }, nil
	case "tcp":
		return func(ctx context.Context) (conversation, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", tcp)
			if err != nil {
				return nil, err
			}
			in := bufio.NewReader(conn)
			return &talk{
				send:    func(text string) error { _, err := fmt.Fprintln(conn, text); return err },
				receive: func() (string, error) { line, err := in.ReadString('\n'); return trim(line), err },
				conn:    conn, end: conn.Close,
			}, nil
		}, nil
	case "grpc", "stream":
		channel, err := grpc.NewClient("passthrough:///"+proxy, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithAuthority(host+rpcPort), grpc.WithDisableRetry(), grpc.WithStatsHandler(retries{kind, r}))
		if err != nil {
			return nil, err
		}
		if kind == "grpc" {
			return func(context.Context) (conversation, error) { return call{channel}, nil }, nil
		}
		return func(context.Context) (conversation, error) { return dialChat(channel) }, nil
	default:
		return nil, fmt.Errorf("kind %s is not known", kind)
	}
}

// web is one HTTP/1.1 connection.
type web struct {
	conn net.Conn
	in   *bufio.Reader
	host string
}

func (w *web) ask(ctx context.Context, text string) (answer string, again bool, err error) {
	if err := deadline(ctx, w.conn); err != nil {
		return "", false, err
	}
	if _, err := fmt.Fprintf(w.conn, "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", text, w.host, len(text), text); err != nil {
		return "", false, fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return "", false, fmt.Errorf("read response: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", false, fmt.Errorf("read body: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", false, fmt.Errorf("status %d: %s %s", response.StatusCode, response.Header.Get("Proxy-Status"), body)
	}
	return string(body), response.Close, nil
}

func (w *web) close() { _ = w.conn.Close() }

// talk is a conversation over something that carries messages.
type talk struct {
	send    func(string) error
	receive func() (string, error)
	conn    net.Conn // for its deadline; nil for none
	end     func() error
}

func (t *talk) ask(ctx context.Context, text string) (answer string, again bool, err error) {
	if t.conn != nil {
		if err := deadline(ctx, t.conn); err != nil {
			return "", false, err
		}
	}
	if err := t.send(text); err != nil {
		return "", false, fmt.Errorf("send: %w", err)
	}
	for {
		answer, err = t.receive()
		if err != nil {
			return "", false, fmt.Errorf("no answer: %w", err)
		}
		if answer != bye {
			return answer, again, nil
		}
		again = true
	}
}

func (t *talk) close() { _ = t.end() }

func deadline(ctx context.Context, conn net.Conn) error {
	at, ok := ctx.Deadline()
	if !ok {
		return errors.New("no deadline")
	}
	return conn.SetDeadline(at)
}

func dialSocket(ctx context.Context, proxy, host string) (conversation, error) {
	config, err := websocket.NewConfig("ws://"+host+"/ws", "http://"+host)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
	if err != nil {
		return nil, err
	}
	if err := deadline(ctx, conn); err != nil {
		return nil, err
	}
	socket, err := websocket.NewClient(config, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &talk{
		send:    func(text string) error { return websocket.Message.Send(socket, text) },
		receive: func() (string, error) { return receive(socket) },
		conn:    conn, end: socket.Close,
	}, nil
}

// call is unary gRPC, over a channel that all share.
type call struct{ channel *grpc.ClientConn }

func (c call) ask(ctx context.Context, text string) (answer string, again bool, err error) {
	var out wrapperspb.StringValue
	err = c.channel.Invoke(ctx, sayMethod, wrapperspb.String(text), &out)
	return out.GetValue(), false, err
}

func (c call) close() {}

func dialChat(channel *grpc.ClientConn) (conversation, error) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := channel.NewStream(ctx, &chatStream, chatMethod)
	if err != nil {
		cancel()
		return nil, err
	}
	return &talk{
		send: func(text string) error { return stream.SendMsg(wrapperspb.String(text)) },
		receive: func() (string, error) {
			timer := time.AfterFunc(requestTime, cancel)
			defer timer.Stop()
			var out wrapperspb.StringValue
			err := stream.RecvMsg(&out)
			return out.GetValue(), err
		},
		end: func() error {
			defer cancel()
			defer time.AfterFunc(requestTime, cancel).Stop()
			err := stream.CloseSend()
			for err == nil { // to its end, so that the backend is not cut off
				err = stream.RecvMsg(new(wrapperspb.StringValue))
			}
			return nil
		},
	}, nil
}

// retries counts what the gRPC library sends again by itself (gRFC A6, transparent retries).
type retries struct {
	kind   string
	record *recorder
}

func (r retries) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (r retries) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r retries) HandleConn(context.Context, stats.ConnStats)                       {}

func (r retries) HandleRPC(_ context.Context, s stats.RPCStats) {
	if b, ok := s.(*stats.Begin); ok && b.IsTransparentRetryAttempt {
		r.record.edit(r.kind, func(k *report.Kind) { k.Retried++ })
	}
}
