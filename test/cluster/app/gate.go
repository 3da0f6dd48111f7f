package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"
)

// openGate relays connections to an address until ctx ends, so that a test can
// ask a pod's proxy as its application does: the proxy listens for that one only.
func openGate(ctx context.Context, group *errgroup.Group, listen, to string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	group.Go(func() error {
		stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
		defer stop()
		for {
			from, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
			group.Go(func() error {
				pass(ctx, from, to)
				return nil
			})
		}
	})
	return nil
}

// pass relays one connection to its end, or that of ctx.
func pass(ctx context.Context, from net.Conn, address string) {
	defer func() { _ = from.Close() }()
	to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return // as if nobody listened
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(to, from) // either end may go away
		_ = to.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(from, to)
	_, _ = from.Close(), to.Close()
	up.Wait()
}
