//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// exchanger is a client's connection that makes one request at a time.
type exchanger interface {
	exchange() error
	// expire ends the exchange that is under way, and close the connection.
	expire()
	close()
}

// http1Conn is one of HTTP/1.1.
type http1Conn struct {
	net.Conn
	body int
	buf  []byte
}

func http1Exchanger(s setup, address string) (exchanger, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &http1Conn{Conn: c, body: s.Body, buf: make([]byte, 4<<10+s.Body)}, nil
}

func (c *http1Conn) expire() { _ = c.SetReadDeadline(time.Unix(1, 0)) }
func (c *http1Conn) close()  { _ = c.Close() }

func (c *http1Conn) exchange() error {
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	have := 0
	for !complete(c.buf[:have], c.body) {
		n, err := c.Read(c.buf[have:])
		if err != nil {
			return err
		}
		have += n
	}
	if !bytes.HasPrefix(c.buf, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answer %.60q", c.buf[:have])
	}
	return nil
}

// grpcConn is one of HTTP/2.
type grpcConn struct {
	*caller
	o outcome
}

func grpcExchanger(s setup, address string) (exchanger, error) {
	c, err := newCaller(s, grpcUnary, address)
	if err != nil {
		return nil, err
	}
	return &grpcConn{caller: c}, nil
}

func (c *grpcConn) expire() { _ = c.tcp.SetReadDeadline(time.Unix(1, 0)) }
func (c *grpcConn) close()  { _ = c.tcp.Close() }

func (c *grpcConn) exchange() error {
	c.ask()
	before := c.done
	return c.flush(&c.o, func() bool { return c.done > before })
}

// pacedLoad sends s.Rate requests a second, each connection on a schedule of its own.
// A request that could not be sent on time, because the one before was still on its way, counts from when it was
// due; what our own timer was late does not count.
func pacedLoad(one func(s setup, address string) (exchanger, error)) func(ctx context.Context, s setup, address string) (outcome, error) {
	return func(ctx context.Context, s setup, address string) (outcome, error) {
		return each(ctx, s, address, func(ctx context.Context, s setup, address string, o *outcome) error {
			c, err := one(s, address)
			if err != nil {
				return err
			}
			defer c.close()
			defer context.AfterFunc(ctx, c.expire)()
			period := time.Second * time.Duration(s.Connections) / time.Duration(s.Rate)
			due := time.Now().Add(rand.N(period))
			for {
				began := due
				if wait := time.Until(due); wait > 0 {
					select {
					case <-ctx.Done():
						return nil
					case <-time.NewTimer(wait).C:
					}
					began = time.Now()
				}
				err := c.exchange()
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				o.done++
				o.latency.add(time.Since(began))
				due = due.Add(period)
			}
		})
	}
}

// weigh gives how many bytes of the proxy's memory a connection takes that is idle after one request.
func (w workload) weigh(ctx context.Context, s setup, p *proxy) (float64, error) {
	var all []exchanger
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	open := func(n int) error {
		for range n {
			c, err := w.one(s, p.address)
			if err != nil {
				return err
			}
			all = append(all, c)
			if err := c.exchange(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.NewTimer(s.Rest).C:
			return nil
		}
	}
	// What is made once is there after a few.
	if err := open(20); err != nil {
		return 0, err
	}
	before, err := resident(p.pid)
	if err != nil {
		return 0, err
	}
	if err := open(s.Connections); err != nil {
		return 0, err
	}
	after, err := resident(p.pid)
	return (float64(after) - float64(before)) / float64(s.Connections), err
}
