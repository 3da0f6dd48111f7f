//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"time"
)

// tcpEndpoints send back what they get.
func tcpEndpoints(s setup) ([]string, func(), error) {
	return listen(s.Endpoints, func(c *net.TCPConn) error {
		buf := make([]byte, 16<<10)
		return inside(c, func(fd int) (bool, error) {
			n, err := rawRead(fd, buf)
			if n <= 0 {
				return errors.Is(err, errAgain), err
			}
			return true, rawWrite(fd, buf[:n])
		})
	})
}

// tcpLoad sends a message on each connection, and the next one when it has come back.
func tcpLoad(ctx context.Context, s setup, address string) (outcome, error) {
	return each(ctx, s, address, tcpClient)
}

func tcpClient(ctx context.Context, _ setup, address string, o *outcome) error {
	message := make([]byte, 64)
	return saturate(ctx, address, message, make([]byte, 16<<10), o, func(got []byte) (bool, error) { return len(got) >= len(message), nil })
}

// bulkEndpoints send for as long as somebody takes it, once they were asked by a byte.
func bulkEndpoints(s setup) ([]string, func(), error) {
	return listen(s.Endpoints, func(c *net.TCPConn) error {
		buf := make([]byte, 256<<10)
		if _, err := c.Read(buf[:1]); err != nil {
			return err
		}
		for {
			if _, err := c.Write(buf); err != nil {
				return err
			}
		}
	})
}

// bulkLoad takes what it gets on each connection.
func bulkLoad(ctx context.Context, s setup, address string) (outcome, error) {
	return each(ctx, s, address, func(ctx context.Context, _ setup, address string, o *outcome) error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // the round is over
		defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		buf := make([]byte, 256<<10)
		for {
			n, err := c.Read(buf)
			o.done += n
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
