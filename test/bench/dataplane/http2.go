//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// call is what a workload of HTTP/2 asks and what it is answered.
type call struct {
	request [][2]string
	// body is sent, if there is any; answer comes back, with trailers if there are any.
	body             []byte
	head, trailers   [][2]string
	answer           func(s setup) []byte
	wantName, wantIs string
	// pingPong: the stream stays, and each message is answered by one; what counts is messages.
	pingPong bool
}

// message is a gRPC message of n bytes with its prefix.
func message(n int) []byte {
	b := make([]byte, 5+n)
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	return b
}

// grpcUnary is a small call as grpc-go makes it.
var grpcUnary = call{
	request: [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/grpc.testing.TestService/UnaryCall"},
		{":authority", authority},
		{"content-type", "application/grpc"},
		{"user-agent", "grpc-go/1.85.0"},
		{"te", "trailers"},
	},
	body:     message(32),
	head:     [][2]string{{":status", "200"}, {"content-type", "application/grpc"}},
	trailers: [][2]string{{"grpc-status", "0"}, {"grpc-message", ""}},
	answer:   func(setup) []byte { return message(32) },
	wantName: "grpc-status", wantIs: "0",
}

// grpcStream is many small messages each way on streams that last as long as the round.
var grpcStream = func() call {
	c := grpcUnary
	c.pingPong, c.wantName, c.wantIs = true, ":status", "200"
	return c
}()

var http2Get = call{
	request: [][2]string{
		{":method", "GET"},
		{":scheme", "http"},
		{":path", "/api/v1/items?id=42"},
		{":authority", authority},
		{"user-agent", "bench/1"},
		{"accept", "*/*"},
		{"accept-encoding", "gzip"},
	},
	head:     [][2]string{{":status", "200"}, {"content-type", "application/json"}},
	answer:   func(s setup) []byte { return make([]byte, s.Body) },
	wantName: ":status", wantIs: "200",
}

// peer2 is one side of a connection that does as little as there can be: it
// serves inside one RawConn.Read, as http1.go has it, with one write for all that one read gave.
type peer2 struct {
	in       []byte
	out      []byte
	enc      *hpack.Encoder
	dec      *hpack.Decoder
	received int
	block    []byte
	// skip is what still comes of the client's preface.
	skip int
}

func newPeer2() *peer2 {
	p := &peer2{in: make([]byte, 0, 256<<10)}
	p.enc = hpack.NewEncoder(appender{&p.block})
	p.dec = hpack.NewDecoder(4096, func(hpack.HeaderField) {})
	return p
}

type appender struct{ to *[]byte }

func (a appender) Write(b []byte) (int, error) {
	*a.to = append(*a.to, b...)
	return len(b), nil
}

func (p *peer2) frame(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	n := len(payload)
	p.out = append(p.out, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags))
	p.out = binary.BigEndian.AppendUint32(p.out, id)
	p.out = append(p.out, payload...)
}

func (p *peer2) headers(id uint32, end http2.Flags, fields [][2]string) {
	p.block = p.block[:0]
	for _, f := range fields {
		_ = p.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	p.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|end, id, p.block)
}

// greet says that there are no limits.
func (p *peer2) greet() {
	settings := binary.BigEndian.AppendUint32([]byte{0, byte(http2.SettingInitialWindowSize)}, 1<<30)
	settings = binary.BigEndian.AppendUint32(append(settings, 0, byte(http2.SettingMaxConcurrentStreams)), 1000)
	p.frame(http2.FrameSettings, 0, 0, settings)
	p.frame(http2.FrameWindowUpdate, 0, 0, []byte{0x3f, 0, 0, 0})
}

// read takes what there is; on has each frame that belongs to a stream.
func (p *peer2) read(fd int, on func(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) error) (bool, error) {
	n, err := rawRead(fd, p.in[len(p.in):cap(p.in)])
	if n <= 0 {
		if n == 0 {
			err = io.EOF
		}
		return errors.Is(err, errAgain), err
	}
	p.in = p.in[:len(p.in)+n]
	b := p.in
	if len(b) < p.skip {
		return true, nil
	}
	b, p.skip = b[p.skip:], 0
	for len(b) >= 9 {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < 9+n {
			break
		}
		t, flags, id, payload := http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:]), b[9:9+n]
		b = b[9+n:]
		if err := p.see(t, flags, payload); err != nil {
			return false, err
		}
		if id != 0 {
			if err := on(t, flags, id, payload); err != nil {
				return false, err
			}
		}
	}
	p.in = p.in[:copy(p.in[:cap(p.in)], b)]
	if len(p.out) > 0 {
		err = rawWrite(fd, p.out)
		p.out = p.out[:0]
	}
	return true, err
}

// see does what the connection itself needs.
func (p *peer2) see(t http2.FrameType, flags http2.Flags, payload []byte) error {
	switch {
	case t == http2.FrameSettings && !flags.Has(http2.FlagSettingsAck):
		for ; len(payload) >= 6; payload = payload[6:] {
			// nginx wants no compression table of its endpoints.
			if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingHeaderTableSize {
				p.enc.SetMaxDynamicTableSizeLimit(binary.BigEndian.Uint32(payload[2:]))
			}
		}
		p.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	case t == http2.FramePing && !flags.Has(http2.FlagPingAck):
		p.frame(http2.FramePing, http2.FlagPingAck, 0, payload)
	case t == http2.FrameGoAway:
		return fmt.Errorf("GOAWAY %q", payload)
	case t == http2.FrameData:
		if p.received += len(payload); p.received > 1<<28 {
			p.frame(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(p.received)))
			p.received = 0
		}
	}
	return nil
}

// http2Endpoints answer every request alike.
func http2Endpoints(what call) func(s setup) ([]string, func(), error) {
	return func(s setup) ([]string, func(), error) {
		answer := what.answer(s)
		return listen(s.Endpoints, func(c *net.TCPConn) error {
			p := newPeer2()
			p.greet()
			p.skip = len(http2.ClientPreface)
			return inside(c, func(fd int) (bool, error) {
				return p.read(fd, func(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) error {
					if what.pingPong {
						switch t { //nolint:exhaustive // the others are not of the stream
						case http2.FrameHeaders:
							p.headers(id, 0, what.head)
						case http2.FrameData:
							p.frame(http2.FrameData, 0, id, payload)
						}
						return nil
					}
					if t != http2.FrameHeaders && t != http2.FrameData || !flags.Has(http2.FlagDataEndStream) {
						return nil
					}
					p.headers(id, 0, what.head)
					if what.trailers == nil {
						p.frame(http2.FrameData, http2.FlagDataEndStream, id, answer)
						return nil
					}
					p.frame(http2.FrameData, 0, id, answer)
					p.headers(id, http2.FlagHeadersEndStream, what.trailers)
					return nil
				})
			})
		})
	}
}

// http2Load keeps s.Streams calls going on each connection.
func http2Load(what call) func(ctx context.Context, s setup, address string) (outcome, error) {
	return func(ctx context.Context, s setup, address string) (outcome, error) {
		return each(ctx, s, address, func(ctx context.Context, s setup, address string, o *outcome) error {
			return client2(ctx, s, what, address, o)
		})
	}
}

// caller is one connection of the load.
type caller struct {
	*peer2
	tcp  *net.TCPConn
	what call
	// answer is how long one is.
	answer int
	next   uint32
	began  map[uint32]time.Time
	right  bool
	size   map[uint32]int
	// again: the end of an answer begins the next request. done is how many ended.
	again bool
	done  int
}

// newCaller connects; nothing is sent yet.
func newCaller(s setup, what call, address string) (*caller, error) {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &caller{
		peer2: newPeer2(), tcp: nc.(*net.TCPConn), what: what, answer: len(what.answer(s)),
		next: 1, began: map[uint32]time.Time{}, size: map[uint32]int{},
	}
	c.dec.SetEmitFunc(func(f hpack.HeaderField) { c.right = c.right || f.Name == what.wantName && f.Value == what.wantIs })
	c.out = append(c.out, http2.ClientPreface...)
	c.greet()
	return c, nil
}

func (c *caller) ask() {
	id := c.next
	c.next += 2
	c.began[id] = time.Now()
	if c.what.body == nil {
		c.headers(id, http2.FlagHeadersEndStream, c.what.request)
		return
	}
	c.headers(id, 0, c.what.request)
	end := http2.FlagDataEndStream
	if c.what.pingPong {
		end = 0
	}
	c.frame(http2.FrameData, end, id, c.what.body)
}

// flush sends what there is to send, and then hears until until says that it is enough.
func (c *caller) flush(o *outcome, until func() bool) error {
	if _, err := c.tcp.Write(c.out); err != nil {
		return err
	}
	c.out = c.out[:0]
	return inside(c.tcp, func(fd int) (bool, error) {
		more, err := c.read(fd, func(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) error {
			return c.heard(o, t, flags, id, payload)
		})
		return more && !until(), err
	})
}

func client2(ctx context.Context, s setup, what call, address string, o *outcome) error {
	c, err := newCaller(s, what, address)
	if err != nil {
		return err
	}
	defer c.tcp.Close() //nolint:errcheck // the round is over
	defer context.AfterFunc(ctx, func() { _ = c.tcp.SetReadDeadline(time.Unix(1, 0)) })()
	c.again = true
	for range s.Streams {
		c.ask()
	}
	err = c.flush(o, func() bool { return false })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// heard checks an answer, and asks anew at its end.
func (c *caller) heard(o *outcome, t http2.FrameType, flags http2.Flags, id uint32, payload []byte) error {
	switch t {
	case http2.FrameHeaders:
		c.right = false
		if _, err := c.dec.Write(payload); err != nil {
			return err
		}
		if !c.right && (c.what.trailers == nil || c.what.pingPong || flags.Has(http2.FlagHeadersEndStream)) {
			return fmt.Errorf("no %s %s in an answer", c.what.wantName, c.what.wantIs)
		}
	case http2.FrameData:
		c.size[id] += len(payload)
	case http2.FrameRSTStream:
		return fmt.Errorf("RST_STREAM %x", payload)
	default:
		return nil
	}
	ended := flags.Has(http2.FlagDataEndStream)
	if c.what.pingPong {
		if ended {
			return errors.New("a stream ended")
		}
		return c.pong(o, id)
	}
	if !ended {
		return nil
	}
	if c.size[id] != c.answer {
		return errors.New("an answer of " + strconv.Itoa(c.size[id]) + " bytes")
	}
	c.count(o, id)
	delete(c.began, id)
	delete(c.size, id)
	if c.again {
		c.ask()
	}
	return nil
}

func (c *caller) count(o *outcome, id uint32) {
	c.done++
	o.done++
	o.latency.add(time.Since(c.began[id]))
}

// pong sends the next message of a stream when one has come whole.
func (c *caller) pong(o *outcome, id uint32) error {
	if c.size[id] < c.answer {
		return nil
	}
	if c.size[id] > c.answer {
		return errors.New("more than was sent")
	}
	c.count(o, id)
	c.size[id] = 0
	c.began[id] = time.Now()
	c.frame(http2.FrameData, 0, id, c.what.body)
	return nil
}
