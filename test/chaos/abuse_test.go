package chaos

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// abusers is the address that abusive clients come from. Nothing of theirs is judged, and none of it may harm others:
// they have services of their own, so that what they share with others is the proxy.
var abusers = net.IPv4(127, 77, 3, 1)

// abuse keeps a few clients on the proxy that break off, dawdle, flood and talk nonsense, until it is over.
func (w *world) abuse(over <-chan struct{}, r *rand.Rand) {
	for !closed(over) {
		what := abuses[r.IntN(len(abuses))]
		w.abuseOnce(over, r, what)
		wait(over, time.Duration(r.IntN(300))*time.Millisecond)
	}
}

func (w *world) abuseOnce(over <-chan struct{}, r *rand.Rand, what func(*rand.Rand) []byte) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: abusers}}
	nc, err := dialer.Dial("tcp", w.proxy.Outbound)
	if err != nil {
		w.t.Errorf("an abuser connects to the proxy: %v", err)
		return
	}
	c := nc.(*net.TCPConn)
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	reading := r.IntN(2) == 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		if reading {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	// In pieces, at any boundary.
	for text := what(r); len(text) > 0; {
		n := 1 + r.IntN(len(text))
		if _, err := c.Write(text[:n]); err != nil {
			break
		}
		text = text[n:]
	}
	wait(over, time.Duration(r.IntN(1500))*time.Millisecond)
	if r.IntN(2) == 0 {
		hangUp(c)
	}
	_ = c.Close()
	<-done
}

// abuses make what an abuser sends.
var abuses = []func(*rand.Rand) []byte{
	func(r *rand.Rand) []byte { // noise
		b := make([]byte, 1+r.IntN(4000))
		for i := range b {
			b[i] = byte(r.Uint32()) //nolint:gosec // noise
		}
		return b
	},
	func(r *rand.Rand) []byte { // a head, broken off anywhere
		head := "POST /abuse HTTP/1.1\r\nHost: abused:8080\r\nX-Field: value\r\nContent-Length: 5\r\n\r\nhello"
		return []byte(head[:1+r.IntN(len(head)-6)])
	},
	func(r *rand.Rand) []byte { // less body than was promised
		return []byte("POST /abuse HTTP/1.1\r\nHost: abused:8080\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", r.IntN(200_000)))
	},
	func(r *rand.Rand) []byte { // chunks that do not end
		return []byte("POST /abuse HTTP/1.1\r\nHost: abused:8080\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("3\r\nabc\r\n", r.IntN(2000)))
	},
	func(*rand.Rand) []byte { // two lengths
		return []byte("POST /abuse HTTP/1.1\r\nHost: abused:8080\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /abuse HTTP/1.1\r\nHost: abused:8080\r\n\r\n")
	},
	func(*rand.Rand) []byte { // many at once, none of which is waited for
		return bytes.Repeat([]byte("POST /abuse HTTP/1.1\r\nHost: abused:8080\r\nContent-Length: 2\r\n\r\nhi"), 20)
	},
	func(*rand.Rand) []byte { // streams that are opened and reset
		return frames(func(f *http2.Framer, headers func(id uint32, end bool)) {
			for id := uint32(1); id < 400; id += 2 {
				headers(id, true)
				_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		})
	},
	func(*rand.Rand) []byte { // a header list without an end
		return frames(func(f *http2.Framer, headers func(id uint32, end bool)) {
			headers(1, false)
			for range 2000 {
				_ = f.WriteContinuation(1, false, nil)
			}
		})
	},
	func(*rand.Rand) []byte { // what must be answered
		return frames(func(f *http2.Framer, _ func(id uint32, end bool)) {
			for range 2000 {
				_ = f.WriteSettings()
				_ = f.WritePing(false, [8]byte{})
			}
		})
	},
	func(*rand.Rand) []byte { // requests whose answers have no window
		return frames(func(f *http2.Framer, headers func(id uint32, end bool)) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for id := uint32(1); id < 40; id += 2 {
				headers(id, true)
			}
		})
	},
	func(*rand.Rand) []byte { // a stream that says nothing more after half of a message
		return frames(func(f *http2.Framer, headers func(id uint32, end bool)) {
			headers(1, true)
			_ = f.WriteData(1, false, []byte{0, 0, 0, 1, 0, 'x'})
		})
	},
}

// frames is a client's preface and frames; headers begins a request, with or without END_HEADERS.
func frames(write func(f *http2.Framer, headers func(id uint32, end bool))) []byte {
	b := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(b, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	write(f, func(id uint32, end bool) {
		block.Reset()
		for _, field := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", fmt.Sprintf("/abuse/%d", id)},
			{":authority", "abused-too:8080"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: end})
	})
	return b.Bytes()
}
