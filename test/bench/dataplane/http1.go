//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// authority is the service's.
const authority = "echo.default.svc.cluster.local:8080"

// request is that of a browser-like client inside a mesh.
const request = "GET /api/v1/items?id=42 HTTP/1.1\r\nHost: " + authority + "\r\nUser-Agent: bench/1\r\nAccept: */*\r\n" +
	"Accept-Encoding: gzip\r\nX-Request-Id: 0b1f8a7e-2d7f-4b7f-9a55-2d1f6c9f7a10\r\n\r\n"

// http1Endpoints answer every request with the same bytes. Both sides of the load do as few system calls as there can be,
// since they share a CPU: each connection is served inside one RawConn.Read, which waits
// for the edge that more bytes make. So one read and one write a request.
func http1Endpoints(s setup) ([]string, func(), error) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Mon, 30 Nov 2026 11:00:00 GMT\r\nContent-Length: " +
		strconv.Itoa(s.Body) + "\r\n\r\n" + strings.Repeat("x", s.Body))
	return listen(s.Endpoints, func(c *net.TCPConn) error {
		buf := make([]byte, 16<<10)
		have := 0
		return inside(c, func(fd int) (bool, error) {
			n, err := rawRead(fd, buf[have:])
			if n <= 0 {
				return errors.Is(err, errAgain), err
			}
			have += n
			if !bytes.HasSuffix(buf[:have], []byte("\r\n\r\n")) {
				return true, nil
			}
			have = 0
			return true, rawWrite(fd, answer)
		})
	})
}

// each runs a client for each connection, and adds up what they saw.
func each(ctx context.Context, s setup, address string, client func(ctx context.Context, s setup, address string, o *outcome) error) (outcome, error) {
	results := make([]outcome, s.Connections)
	fails := make([]error, s.Connections)
	var wg sync.WaitGroup
	for i := range s.Connections {
		wg.Go(func() { fails[i] = client(ctx, s, address, &results[i]) })
	}
	wg.Wait()
	var all outcome
	for i := range results {
		all.done += results[i].done
		all.latency.merge(&results[i].latency)
	}
	return all, errors.Join(fails...)
}

// http1Load sends a request on each connection and the next one when the response is there.
func http1Load(ctx context.Context, s setup, address string) (outcome, error) {
	return each(ctx, s, address, client)
}

func client(ctx context.Context, s setup, address string, o *outcome) error {
	return saturate(ctx, address, []byte(request), make([]byte, 16<<10+s.Body), o, func(got []byte) (bool, error) {
		if !complete(got, s.Body) {
			return false, nil
		}
		if !bytes.HasPrefix(got, []byte("HTTP/1.1 200 ")) {
			return false, fmt.Errorf("answer %.60q", got)
		}
		return true, nil
	})
}

// saturate sends text on a connection of its own, and again whenever whole finds the answer to be there, which is read into buf.
func saturate(ctx context.Context, address string, text, buf []byte, o *outcome, whole func(got []byte) (bool, error)) error {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	c := nc.(*net.TCPConn)
	defer c.Close() //nolint:errcheck // the round is over
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	began, have := time.Now(), 0
	if _, err := c.Write(text); err != nil {
		return err
	}
	err = inside(c, func(fd int) (bool, error) {
		n, err := rawRead(fd, buf[have:])
		if n <= 0 {
			if n == 0 && err == nil {
				err = io.EOF
			}
			return errors.Is(err, errAgain), err
		}
		have += n
		if done, err := whole(buf[:have]); !done || err != nil {
			return err == nil, err
		}
		have = 0
		t := time.Now()
		o.done++
		o.latency.add(t.Sub(began))
		began = t
		return true, rawWrite(fd, text)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// complete: a head and a body of that length are there.
func complete(b []byte, body int) bool {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	return end >= 0 && len(b) >= end+4+body
}

// listen starts n servers on ports of their own; serve has each connection.
func listen(n int, serve func(*net.TCPConn) error) ([]string, func(), error) {
	var addresses []string
	var all []io.Closer
	var mu sync.Mutex // guards all
	var wg sync.WaitGroup
	stop := func() {
		mu.Lock()
		for _, c := range all {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, err
		}
		mu.Lock()
		all = append(all, l)
		mu.Unlock()
		addresses = append(addresses, l.Addr().String())
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				wg.Go(func() {
					defer c.Close()             //nolint:errcheck // it is over
					_ = serve(c.(*net.TCPConn)) // the client sees it
				})
			}
		})
	}
	return addresses, stop, nil
}

var errAgain error = syscall.EAGAIN

// inside calls f with c's descriptor now, and then whenever there may be something to read, until f gives false or an error.
func inside(c *net.TCPConn, f func(fd int) (bool, error)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		more, err := f(int(fd))
		if more && (err == nil || errors.Is(err, errAgain)) {
			return false
		}
		failed = err
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}
