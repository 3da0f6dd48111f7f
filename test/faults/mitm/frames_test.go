package mitm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// end is a peer that speaks in frames.
type end struct {
	net.Conn
	*http2.Framer
}

// frames gives both ends of a relayed connection, after the preface and the SETTINGS.
func frames(t *testing.T) (p *Proxy, client, server end) {
	t.Helper()
	p, accepted := raw(t)
	c, s := dial(t, p, accepted)
	client, server = end{c, http2.NewFramer(c, c)}, end{s, http2.NewFramer(s, s)}
	client.ReadMetaHeaders, server.ReadMetaHeaders = hpack.NewDecoder(4096, nil), hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(client, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	must(t, client.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7}))
	if err := readPreface(server); err != nil {
		t.Fatal(err)
	}
	if v, ok := next[*http2.SettingsFrame](t, server).Value(http2.SettingMaxConcurrentStreams); !ok || v != 7 {
		t.Errorf("settings: %d %t", v, ok)
	}
	return p, client, server
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next reads a frame, which must be of this type.
func next[F http2.Frame](t *testing.T, e end) F {
	t.Helper()
	frame, err := e.ReadFrame()
	must(t, err)
	f, ok := frame.(F)
	if !ok {
		t.Fatalf("got %v", frame)
	}
	return f
}

// block encodes a request's headers.
func block(t *testing.T, more ...hpack.HeaderField) []byte {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range slices.Concat([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/x/Y"}, {Name: ":authority", Value: "z"},
	}, more) {
		must(t, e.WriteField(f))
	}
	return b.Bytes()
}

func grpcMessage(body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// What gRPC libraries seldom send passes too: CONTINUATION, padding, priorities,
// unknown frames, stream and connection errors.
func TestRareFrames(t *testing.T) {
	_, client, server := frames(t)
	b := block(t, hpack.HeaderField{Name: "secret", Value: "s", Sensitive: true})
	must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:3], PadLength: 9, Priority: http2.PriorityParam{Weight: 3}}))
	must(t, client.WriteContinuation(1, false, b[3:10]))
	must(t, client.WriteContinuation(1, true, b[10:]))
	h := next[*http2.MetaHeadersFrame](t, server)
	if h.PseudoValue("path") != "/x/Y" || !h.Fields[4].Sensitive || h.StreamEnded() {
		t.Errorf("headers: %v", h)
	}
	must(t, client.WriteDataPadded(1, false, grpcMessage("hi"), make([]byte, 20)))
	if d := next[*http2.DataFrame](t, server); !bytes.Equal(d.Data(), grpcMessage("hi")) {
		t.Errorf("data: %q", d.Data())
	}
	// The server never saw the padding, so the proxy gives it back.
	for range 2 {
		if u := next[*http2.WindowUpdateFrame](t, client); u.Increment != 21 {
			t.Errorf("given back: %v", u)
		}
	}
	must(t, client.WritePriority(1, http2.PriorityParam{StreamDep: 5, Weight: 4}))
	if f := next[*http2.PriorityFrame](t, server); f.StreamDep != 5 {
		t.Errorf("priority: %v", f)
	}
	must(t, server.WriteRawFrame(0xbe, 3, 1, []byte("unknown")))
	if f := next[*http2.UnknownFrame](t, client); f.Type != 0xbe || string(f.Payload()) != "unknown" {
		t.Errorf("unknown: %v", f)
	}
	must(t, server.WriteWindowUpdate(1, 1234))
	if f := next[*http2.WindowUpdateFrame](t, client); f.Increment != 1234 || f.StreamID != 1 {
		t.Errorf("update: %v", f)
	}
	must(t, server.WriteRSTStream(1, http2.ErrCodeRefusedStream))
	if f := next[*http2.RSTStreamFrame](t, client); f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("reset: %v", f)
	}
	// DATA that crossed the reset is lost, and the connection's window is given back.
	must(t, client.WriteData(1, true, make([]byte, 100)))
	if f := next[*http2.WindowUpdateFrame](t, client); f.Increment != 100 || f.StreamID != 0 {
		t.Errorf("update: %v", f)
	}
	must(t, server.WriteGoAway(1, http2.ErrCodeInternal, []byte("why")))
	if f := next[*http2.GoAwayFrame](t, client); f.LastStreamID != 1 || string(f.DebugData()) != "why" {
		t.Errorf("goaway: %v", f)
	}
}

// A message in many frames, with END_STREAM on its last, is swallowed whole; the end passes.
func TestSwallowPieces(t *testing.T) {
	p, client, server := frames(t)
	defer p.Swallow(nil)()
	must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t), EndHeaders: true}))
	next[*http2.MetaHeadersFrame](t, server)
	m := grpcMessage(strings.Repeat("x", 1000))
	for i, b := range m {
		must(t, client.WriteData(1, i == len(m)-1, []byte{b}))
	}
	if d := next[*http2.DataFrame](t, server); len(d.Data()) != 0 || !d.StreamEnded() {
		t.Errorf("data: %v", d)
	}
}

// A message that ends in the middle passes as it is, at the stream's end.
func TestIncompleteMessage(t *testing.T) {
	p, client, server := frames(t)
	defer p.Swallow(nil)()
	must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t), EndHeaders: true}))
	next[*http2.MetaHeadersFrame](t, server)
	must(t, client.WriteData(1, true, grpcMessage("abc")[:7]))
	if d := next[*http2.DataFrame](t, server); len(d.Data()) != 7 || !d.StreamEnded() {
		t.Errorf("data: %v", d)
	}
}

// A delayed message does not fall into one that is passing in pieces.
func TestDelayedNotInTheMiddle(t *testing.T) {
	p, client, server := frames(t)
	undo := p.Delay(nil, never)
	must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t), EndHeaders: true}))
	next[*http2.MetaHeadersFrame](t, server)
	must(t, client.WriteData(1, false, grpcMessage("late")))
	until(t, "delayed", func() bool { return p.Stats().Delayed == 1 })
	// The second begins to pass when the rule is gone, the first is still kept by another.
	p.change(func(f *faults) { f.messages = nil })
	second := grpcMessage("second")
	must(t, client.WriteData(1, false, second[:6]))
	got := bytes.Clone(next[*http2.DataFrame](t, server).Data())
	undo()
	must(t, client.WriteData(1, false, second[6:]))
	for len(got) < 2*prefixBytes+len("secondlate") {
		got = append(got, next[*http2.DataFrame](t, server).Data()...)
	}
	if want := slices.Concat(second, grpcMessage("late")); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Who sends more than the connection's window is cut off, so that memory stays bounded.
func TestWindowOverrun(t *testing.T) {
	p, client, server := frames(t)
	must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t), EndHeaders: true}))
	for range 5 {
		_ = client.WriteData(1, false, make([]byte, frameBytes)) // the last may find the connection closed
	}
	until(t, "cut off", func() bool { return p.Stats().Broken == 1 })
	_, _ = io.Copy(io.Discard, server)
	server.Close()
}

// FuzzFrames feeds the proxy with anything from both sides: it relays it or closes both
// sides, and keeps nothing.
func FuzzFrames(f *testing.F) {
	var good bytes.Buffer
	framer := http2.NewFramer(&good, nil)
	framer.AllowIllegalWrites = true
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	_ = framer.WriteWindowUpdate(0, 1<<31-1)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x86, 0x84, 0x41, 1, 'a'}, EndHeaders: true})
	_ = framer.WriteData(1, false, grpcMessage("hello"))
	_ = framer.WriteData(1, false, []byte{0, 255, 255, 255, 255, 1, 2})
	_ = framer.WriteRSTStream(1, http2.ErrCodeNo)
	_ = framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
	f.Add(good.Bytes(), good.Bytes(), true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), false)
	f.Add([]byte{0, 0, 255, 1, 4, 0, 0, 0, 1, 0x80}, []byte{}, true)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, fromClient, fromServer []byte, preface bool) {
		p, accepted := raw(t)
		defer p.Duplicate(nil)()
		client, server := dial(t, p, accepted)
		if preface {
			fromClient = append([]byte(http2.ClientPreface), fromClient...)
		}
		_, _ = client.Write(fromClient)
		_, _ = server.Write(fromServer)
		_ = client.(*net.TCPConn).CloseWrite()
		must(t, server.SetReadDeadline(time.Now().Add(soon)))
		_, err := io.Copy(io.Discard, server)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server's side was not closed")
		}
		server.Close()
		until(t, "ended", func() bool { return p.Stats().Open == 0 })
	})
}
