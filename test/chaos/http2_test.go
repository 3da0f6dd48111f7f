package chaos

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is one HTTP/2 connection of a peer, frame by frame.
type h2 struct {
	*peer
	conn    *net.TCPConn
	limited bool

	mu      sync.Mutex // guards writing
	framer  *http2.Framer
	encoded bytes.Buffer
	encoder *hpack.Encoder

	// Owned by serve: streams that are open → what ends with them.
	streams map[uint32]*h2stream
	away    uint32
}

type h2stream struct {
	id           uint32
	request      string
	what         string
	grpc         bool
	ended, reset chan struct{}
}

func (h *h2) serve() {
	if _, err := io.ReadFull(h.conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	h.framer = http2.NewFramer(h.conn, h.conn)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.encoder = hpack.NewEncoder(&h.encoded)
	h.streams = map[uint32]*h2stream{}
	var wg sync.WaitGroup
	defer wg.Wait()
	// Answers end when the connection does.
	defer func() {
		for _, s := range h.streams {
			close(s.reset)
		}
	}()
	limit := uint32(100)
	if h.limited {
		limit = 1
	}
	if h.write(func() error {
		return h.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit})
	}) != nil {
		return
	}
	for {
		frame, err := h.framer.ReadFrame()
		if err != nil {
			return
		}
		if s := h.take(frame); s != nil {
			wg.Go(func() { h.answer(s) })
		}
	}
}

func (h *h2) write(f func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f()
}

// take works on a frame, and gives the stream that begins with it.
func (h *h2) take(frame http2.Frame) *h2stream {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = h.write(h.framer.WriteSettingsAck)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = h.write(func() error { return h.framer.WritePing(true, f.Data) })
		}
	case *http2.RSTStreamFrame:
		if s := h.streams[f.StreamID]; s != nil {
			delete(h.streams, f.StreamID)
			close(s.reset)
		}
	case *http2.DataFrame:
		if n := f.Length; n > 0 {
			_ = h.write(func() error {
				_ = h.framer.WriteWindowUpdate(0, n)
				return h.framer.WriteWindowUpdate(f.StreamID, n)
			})
		}
		if s := h.streams[f.StreamID]; s != nil && f.StreamEnded() {
			close(s.ended)
		}
	case *http2.MetaHeadersFrame:
		return h.opened(f)
	}
	return nil
}

func (h *h2) opened(f *http2.MetaHeadersFrame) *h2stream {
	if h.away > 0 && f.StreamID > h.away || h.streams[f.StreamID] != nil {
		return nil
	}
	id, what := requestOf(f.PseudoValue("path"))
	s := &h2stream{id: f.StreamID, request: id, what: what, ended: make(chan struct{}), reset: make(chan struct{})}
	for _, field := range f.RegularFields() {
		s.grpc = s.grpc || field.Name == "content-type" && strings.HasPrefix(field.Value, "application/grpc")
	}
	if f.StreamEnded() {
		close(s.ended)
	}
	plan, _ := h.plan()
	if plan == goneAway {
		// This one is not worked on, nor is what comes after it.
		h.ledger.begin(h.address, goneAway)()
		h.away = max(f.StreamID, 2) - 2
		_ = h.write(func() error { return h.framer.WriteGoAway(h.away, http2.ErrCodeNo, nil) })
		h.away = max(h.away, 1)
		return nil
	}
	h.streams[f.StreamID] = s
	return s
}

// answer answers a stream.
func (h *h2) answer(s *h2stream) {
	select {
	case <-s.ended:
	case <-s.reset:
		return
	}
	plan, healed := h.plan()
	if plan != "" && plan != goneAway {
		h.ledger.did(h.address, s.request, plan)
	}
	reset := func(code http2.ErrCode) { _ = h.write(func() error { return h.framer.WriteRSTStream(s.id, code) }) }
	switch plan { //nolint:exhaustive // the others are of connections
	case dropped:
		reset(http2.ErrCodeInternal)
		return
	case refused:
		reset(http2.ErrCodeRefusedStream)
		return
	case nonsense:
		h.ledger.begin(h.address, spoilt)()
		reset(http2.ErrCodeProtocol)
		return
	case held:
		select {
		case <-healed:
		case <-s.reset:
			return
		}
	case delayed:
		wait(s.reset, time.Duration(100+rand.IntN(900))*time.Millisecond)
	case failed:
		if s.grpc {
			_ = h.headers(s.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", strconv.Itoa([]int{13, 14}[rand.IntN(2)]), "grpc-message", "own")
		} else {
			_ = h.headers(s.id, true, ":status", strconv.Itoa([]int{500, 502, 503}[rand.IntN(3)]))
		}
		return
	}
	h.ledger.did(h.address, s.request, began)
	if h.body(s, plan == cut) {
		reset(http2.ErrCodeInternal)
	}
}

// body sends the answer; true when it is to be cut.
func (h *h2) body(s *h2stream, cutting bool) bool {
	if !s.grpc {
		_ = h.headers(s.id, false, ":status", "200")
		_ = h.data(s.id, !cutting, []byte(s.request))
		if cutting {
			wait(s.reset, beforeCut)
		}
		return cutting
	}
	_ = h.headers(s.id, false, ":status", "200", "content-type", "application/grpc")
	messages, pause := 1, time.Duration(0)
	switch s.what {
	case "stream":
		messages, pause = 10, 20*time.Millisecond
	case "long":
		messages, pause = 60, 50*time.Millisecond
	}
	for i := range messages {
		if i > 0 {
			wait(s.reset, pause)
		}
		if a, _ := h.now(); messages > 1 && a == cut && i > 2 {
			h.ledger.did(h.address, s.request, cut)
			return true
		}
		if h.data(s.id, false, message(s.request)) != nil {
			return false
		}
		if cutting && i == 0 {
			wait(s.reset, beforeCut)
			return true
		}
	}
	_ = h.headers(s.id, true, "grpc-status", "0")
	return false
}

// message frames a gRPC message.
func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...) //nolint:gosec // short
}

func (h *h2) headers(id uint32, end bool, fields ...string) error {
	return h.write(func() error {
		h.encoded.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = h.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.encoded.Bytes(), EndHeaders: true, EndStream: end})
	})
}

func (h *h2) data(id uint32, end bool, b []byte) error {
	return h.write(func() error { return h.framer.WriteData(id, end, b) })
}
