package http2

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2/header"
)

// side is what a link's owner, a *Server or a *Client, does about frames that
// concern its streams. All but ended are called by the reader; those that
// say so need mu.
type side interface {
	headers(t *Turn, h *headers) error
	data(t *Turn, fh http2.FrameHeader, p []byte) error
	reset(t *Turn, id uint32, code http2.ErrCode) error
	// refuse resets a stream on which the peer broke a rule.
	refuse(t *Turn, id uint32, code http2.ErrCode) error
	goneAway(t *Turn, last uint32, code http2.ErrCode)
	// settled says that the peer's settings have been taken.
	settled(t *Turn, first bool)
	// opened says that a stream may send more, or all may for id 0. known is false for a stream that never was. It needs mu.
	opened(t *Turn, id uint32, n int) (known bool, err error)
	// widened adds to the send windows of all streams; false where one gets too large. It needs mu.
	widened(n int) bool
	// tick looks for what stalls; it is called every PingTimeout/2. An error ends the connection. It needs mu.
	tick(t *Turn, now time.Time) error
	// last is the highest stream of the peer's that we have seen to. It needs mu.
	last() uint32
}

// headers is a header block with what its first frame said.
type headers struct {
	id    uint32
	end   bool
	block []byte
	// loop: the stream is said to depend on itself.
	loop bool
}

// link is what both sides have in common: the protocol of a connection without its streams.
type link struct {
	wire
	cfg  *Config
	side side

	// owned by the reader
	turn    Turn
	dec     *header.Decoder
	began   bool
	pending headers
	partial []byte
	parts   int

	// guarded by mu
	left [Abuses]bucket
	enc  *header.Encoder
	// sendWindow and recvWindow are those of the connection; owed is what came and is not given back yet.
	sendWindow, recvWindow, owed int
	// held is what we hold of bodies that came here, up to holds; 0 is no limit.
	held, holds int
	// What the peer's settings say.
	peerWindow, peerFrame int
	peerStreams           uint32
	peerConnect           bool
	// blocked are the flows that wait for the connection's window, or for room in the output.
	blocked []*flow
	// failure is why a timer closed the connection; nil otherwise.
	failure error
	// silent is for how long nothing came, asked: a PING of ours is not answered.
	silent time.Duration
	asked  bool
	ticker *time.Timer
	over   bool

	// heard is set by every read.
	heard atomic.Bool
}

func (l *link) init(nc net.Conn, early []byte, cfg *Config, s side) {
	l.wire.init(nc, early, cfg.StallTimeout)
	l.cfg, l.side = cfg, s
	l.dec, l.enc = header.NewDecoder(cfg.lists()), header.NewEncoder()
	l.sendWindow, l.recvWindow = firstWindow, cfg.ConnWindow
	l.peerWindow, l.peerFrame, l.peerStreams = firstWindow, frameSize, 1<<32-1
	l.idle, l.wire.refill = l.turn.End, l.refill
}

// run reads frames until the connection ends, and gives why: io.EOF where the
// peer closed between frames.
func (l *link) run() error {
	for {
		fh, p, err := l.next()
		if err != nil {
			return err
		}
		if err := l.frame(&l.turn, fh, p); err != nil {
			return err
		}
	}
}

// next gives the next frame. Of those that carry traffic p is the payload as
// it came; the others come as x/net's Framer parsed them, by frame.
func (l *link) next() (http2.FrameHeader, []byte, error) {
	for {
		have := l.have()
		if len(have) >= headLen {
			n := int(have[0])<<16 | int(have[1])<<8 | int(have[2])
			if n > frameSize {
				return http2.FrameHeader{}, nil, &ConnError{Code: http2.ErrCodeFrameSize, Text: fmt.Sprintf("a frame of %d bytes", n)}
			}
			if len(have) >= headLen+n {
				fh, err := l.framer.ReadFrameHeader()
				if err != nil {
					return fh, nil, l.framing(err)
				}
				return fh, l.have()[:n], nil
			}
		}
		if err := l.more(); err != nil {
			if errors.Is(err, io.EOF) && len(have) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return http2.FrameHeader{}, nil, err
		}
		l.heard.Store(true)
	}
}

// framing makes a ConnError of an error of the framer's.
func (l *link) framing(err error) error {
	if code, ok := errors.AsType[http2.ConnectionError](err); ok {
		text := "a frame breaks the rules"
		if detail := l.framer.ErrorDetail(); detail != nil {
			text = detail.Error()
		}
		return &ConnError{Code: http2.ErrCode(code), Text: text}
	}
	if s, ok := errors.AsType[http2.StreamError](err); ok {
		return &ConnError{Code: s.Code, Text: "a frame breaks the rules"}
	}
	return protocolError(err.Error())
}

// frame sees to one frame.
func (l *link) frame(t *Turn, fh http2.FrameHeader, p []byte) error {
	if !l.began && fh.Type != http2.FrameSettings {
		return protocolError("the first frame is no SETTINGS")
	}
	switch fh.Type {
	case http2.FrameData:
		l.from += len(p)
		if fh.StreamID == 0 {
			return protocolError("DATA on stream 0")
		}
		return l.side.data(t, fh, p)
	case http2.FrameHeaders, http2.FrameContinuation:
		l.from += len(p)
		return l.block(t, fh, p)
	case http2.FrameWindowUpdate:
		l.from += len(p)
		return l.window(t, fh, p)
	case http2.FrameRSTStream:
		l.from += len(p)
		if len(p) != 4 {
			return &ConnError{Code: http2.ErrCodeFrameSize, Text: "RST_STREAM that has not 4 bytes"}
		}
		if fh.StreamID == 0 {
			return protocolError("RST_STREAM on stream 0")
		}
		return l.side.reset(t, fh.StreamID, http2.ErrCode(binary.BigEndian.Uint32(p)))
	case http2.FramePing:
		l.from += len(p)
		return l.ping(t, fh, p)
	case http2.FramePriority:
		l.from += len(p)
		if fh.StreamID == 0 {
			return protocolError("PRIORITY on stream 0")
		}
		if len(p) != 5 {
			return l.side.refuse(t, fh.StreamID, http2.ErrCodeFrameSize)
		}
		if binary.BigEndian.Uint32(p)&maxID == fh.StreamID {
			return l.side.refuse(t, fh.StreamID, http2.ErrCodeProtocol)
		}
		return l.charge(PriorityFlood)
	case http2.FrameSettings, http2.FrameGoAway, http2.FramePushPromise:
		return l.parsed(t, fh)
	default:
		l.from += len(p)
		return l.charge(UnknownFrames)
	}
}

// parsed sees to the frames that are rare, parsed by x/net.
func (l *link) parsed(t *Turn, fh http2.FrameHeader) error {
	f, err := l.framer.ReadFrameForHeader(fh)
	if err != nil {
		return l.framing(err)
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return l.settings(t, f)
	case *http2.GoAwayFrame:
		l.side.goneAway(t, f.LastStreamID, f.ErrCode)
		return nil
	default:
		return protocolError("PUSH_PROMISE, which nobody asked for")
	}
}

// spend takes a token of a budget. It needs mu; charge does not.
func (l *link) spend(a Abuse) error {
	if !l.left[a].take(l.cfg.Budgets[a]) {
		return abusive(a, "too many frames of the kind "+a.String())
	}
	return nil
}

func (l *link) charge(a Abuse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(a)
}

// earn puts tokens back for what carries something. It needs mu.
func (l *link) earn(kinds ...Abuse) {
	for _, a := range kinds {
		l.left[a].give()
	}
}

// block collects the parts of a header block.
func (l *link) block(t *Turn, fh http2.FrameHeader, p []byte) error {
	ended := fh.Flags.Has(http2.FlagHeadersEndHeaders)
	if fh.Type == http2.FrameHeaders {
		if fh.StreamID == 0 {
			return protocolError("HEADERS on stream 0")
		}
		p, _, err := unpad(fh, p)
		if err != nil {
			return err
		}
		l.pending = headers{id: fh.StreamID, end: fh.Flags.Has(http2.FlagHeadersEndStream)}
		if fh.Flags.Has(http2.FlagHeadersPriority) {
			if len(p) < 5 {
				return &ConnError{Code: http2.ErrCodeFrameSize, Text: "HEADERS too short for its priority"}
			}
			l.pending.loop = binary.BigEndian.Uint32(p)&maxID == fh.StreamID
			p = p[5:]
		}
		if ended {
			l.pending.block = p
			return l.side.headers(t, &l.pending)
		}
		l.partial, l.parts = append(l.partial[:0], p...), 1
		return nil
	}
	l.parts++
	if l.parts > maxParts || len(l.partial)+len(p) > 2*l.cfg.MaxHeaderBytes {
		return abusive(ContinuationFlood, "a header block has too many parts or bytes")
	}
	l.partial = append(l.partial, p...)
	if !ended {
		return nil
	}
	l.pending.block = l.partial
	err := l.side.headers(t, &l.pending)
	l.partial = nil
	return err
}

func (l *link) window(t *Turn, fh http2.FrameHeader, p []byte) error {
	if len(p) != 4 {
		return &ConnError{Code: http2.ErrCodeFrameSize, Text: "WINDOW_UPDATE that has not 4 bytes"}
	}
	n := int(binary.BigEndian.Uint32(p) & maxID)
	switch {
	case n == 0 && fh.StreamID == 0:
		return protocolError("WINDOW_UPDATE by nothing")
	case n == 0:
		return l.side.refuse(t, fh.StreamID, http2.ErrCodeProtocol)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.spend(WindowFlood); err != nil {
		return err
	}
	if fh.StreamID == 0 {
		l.sendWindow += n
		if l.sendWindow > maxWindow {
			return flowError("the connection's window is over 2^31-1")
		}
	}
	known, err := l.side.opened(t, fh.StreamID, n)
	if !known {
		return protocolError("WINDOW_UPDATE on a stream that never was")
	}
	return err
}

func (l *link) ping(t *Turn, fh http2.FrameHeader, p []byte) error {
	switch {
	case len(p) != 8:
		return &ConnError{Code: http2.ErrCodeFrameSize, Text: "PING that has not 8 bytes"}
	case fh.StreamID != 0:
		return protocolError("PING on a stream")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if fh.Flags.Has(http2.FlagPingAck) {
		l.asked = false
		return nil
	}
	l.send(t, appendPing(l.put().b, true, binary.BigEndian.Uint64(p)))
	return l.spend(PingFlood)
}

// settings takes the peer's settings (RFC 9113 section 6.5).
func (l *link) settings(t *Turn, f *http2.SettingsFrame) error {
	if f.IsAck() {
		if !l.began {
			return protocolError("the first frame is no SETTINGS")
		}
		return l.charge(SettingsFlood)
	}
	if f.NumSettings() > 32 {
		return abusive(SettingsFlood, "too many settings in a frame")
	}
	first := !l.began
	l.began = true
	l.mu.Lock()
	err := f.ForeachSetting(func(s http2.Setting) error { return l.setting(s) })
	if err == nil {
		l.send(t, appendSettingsAck(l.put().b))
		_, err = l.side.opened(t, 0, 0)
	}
	l.mu.Unlock()
	if err != nil {
		return l.asConnError(err)
	}
	l.side.settled(t, first)
	return l.charge(SettingsFlood)
}

func (l *link) asConnError(err error) error {
	if _, ok := errors.AsType[*ConnError](err); ok {
		return err
	}
	return l.framing(err)
}

// setting takes one. It needs mu.
func (l *link) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingInitialWindowSize:
		delta := int(s.Val) - l.peerWindow
		l.peerWindow = int(s.Val)
		if !l.side.widened(delta) {
			return flowError("the initial window makes one larger than 2^31-1")
		}
	case http2.SettingMaxFrameSize:
		// Longer frames than we take ourselves would only keep others waiting.
		l.peerFrame = min(int(s.Val), frameSize)
	case http2.SettingHeaderTableSize:
		l.enc.SetTableSize(s.Val)
	case http2.SettingMaxConcurrentStreams:
		l.peerStreams = s.Val
	case http2.SettingEnableConnectProtocol:
		l.peerConnect = s.Val == 1
	case http2.SettingEnablePush:
		if _, ok := l.side.(*Client); ok && s.Val != 0 {
			return protocolError("a server enables push")
		}
	case http2.SettingMaxHeaderListSize:
	default:
	}
	return nil
}

// send takes b, which is the output with something appended, and has the turn write it. It needs mu.
func (l *link) send(t *Turn, b []byte) {
	l.out.b = b
	if l.dead {
		l.out.free()
		l.out = nil
		return
	}
	if !l.flagged {
		l.flagged = true
		t.Add(l)
	}
	if len(b) > maxOutput {
		// Its reader ends the connection with the error.
		l.failure = abusive(OutputFlood, "what is to be written is not read")
		l.kill()
	}
}

// Flush writes what waits.
func (l *link) Flush(t *Turn) {
	l.mu.Lock()
	l.flagged = false
	l.write(t)
	l.mu.Unlock()
}

// received takes n bytes of flow-controlled data off the connection's window. It needs mu.
func (l *link) received(t *Turn, n int) error {
	l.recvWindow -= n
	l.owed += n
	if l.recvWindow < 0 {
		return flowError("more data than the connection's window allows")
	}
	l.repay(t)
	return nil
}

// repay gives the connection's window back, unless we hold too much already. It needs mu.
func (l *link) repay(t *Turn) {
	if l.owed < l.cfg.ConnWindow/4 || l.holds > 0 && l.held > l.holds {
		return
	}
	l.send(t, appendWindowUpdate(l.put().b, 0, l.owed))
	l.recvWindow += l.owed
	l.owed = 0
}

// greet appends our settings and the connection's window. It needs mu.
func (l *link) greet(t *Turn, b []byte, extra ...http2.Setting) {
	all := append([]http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(l.cfg.StreamWindow)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(l.cfg.MaxHeaderBytes)},
	}, extra...)
	b = appendSettings(b, all...)
	if more := l.cfg.ConnWindow - firstWindow; more > 0 {
		b = appendWindowUpdate(b, 0, more)
	}
	l.recvWindow = max(l.cfg.ConnWindow, firstWindow)
	l.send(t, b)
}

// tickEvery is how often a connection is looked at: for what is bounded to be found within half as much again.
func (l *link) tickEvery() time.Duration {
	least := min(l.cfg.PingTimeout, l.cfg.StallTimeout)
	if d := l.cfg.BodyTimeout; d > 0 {
		least = min(least, d)
	}
	return least / 2
}

// startTicks begins to look at the connection every so often, until stopTicks.
func (l *link) startTicks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticker = time.AfterFunc(l.tickEvery(), l.ticked)
}

func (l *link) stopTicks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.ticker != nil {
		l.ticker.Stop()
	}
}

var errSilent = errors.New("a PING was not answered")

func (l *link) ticked() {
	var t Turn
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	err := l.side.tick(&t, time.Now())
	every := l.tickEvery()
	switch {
	case l.heard.Swap(false):
		l.silent, l.asked = 0, false
	case l.asked && l.silent >= l.cfg.PingAfter+l.cfg.PingTimeout:
		err = errSilent
	default:
		if l.silent += every; l.silent >= l.cfg.PingAfter && !l.asked {
			l.asked, l.silent = true, l.cfg.PingAfter
			l.send(&t, appendPing(l.put().b, false, 0))
		}
	}
	if err != nil {
		l.failure = err
	} else {
		l.ticker.Reset(every)
	}
	l.mu.Unlock()
	if err != nil {
		l.part(&t, err)
		return
	}
	t.flush()
}

// part says goodbye with what err has to say and makes the reader end.
func (l *link) part(t *Turn, err error) {
	l.farewell(t, err)
	t.flush()
	_ = l.nc.SetReadDeadline(past)
}

// farewell sends a GOAWAY if there is something to say.
func (l *link) farewell(t *Turn, err error) {
	e, ok := errors.AsType[*ConnError](err)
	if !ok {
		return
	}
	l.mu.Lock()
	l.send(t, appendGoAway(l.put().b, l.side.last(), e.Code, e.Text))
	l.mu.Unlock()
}

const (
	// lingerTime and lingerBytes bound how much of what still comes is thrown away, so that the peer gets the
	// GOAWAY: closing with unread data would take it back.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 1 << 20
)

// finish closes the connection after run gave err, and gives why it ended.
func (l *link) finish(t *Turn, err error) error {
	l.stopTicks()
	l.mu.Lock()
	told := l.failure != nil
	if told {
		err = l.failure
	}
	l.mu.Unlock()
	_, wrong := errors.AsType[*ConnError](err)
	if wrong && !told {
		l.farewell(t, err)
	}
	t.flush()
	if wrong || errors.Is(err, errClosed) {
		l.drain(t, lingerTime)
		l.linger()
	}
	l.mu.Lock()
	if l.stuck {
		err = abusive(Stalled, "the peer does not read")
	}
	l.dead = true
	if l.out != nil {
		l.out.free()
		l.out = nil
	}
	l.mu.Unlock()
	_ = l.nc.Close()
	l.release()
	l.writers.Wait()
	if e, ok := errors.AsType[*ConnError](err); ok && e.Abusive && l.cfg.Abused != nil {
		l.cfg.Abused(e.Abuse)
	}
	return err
}

func (l *link) linger() {
	hc, ok := l.nc.(interface{ CloseWrite() error })
	if !ok {
		return
	}
	l.mu.Lock()
	hopeless := l.writing || l.dead
	l.mu.Unlock()
	if hopeless || hc.CloseWrite() != nil {
		return
	}
	_ = l.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, l.nc, lingerBytes)
}

// waitContext closes the connection when ctx ends; the function it gives undoes that.
func (l *link) waitContext(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() {
		l.mu.Lock()
		if l.failure == nil {
			l.failure = context.Cause(ctx)
		}
		l.kill()
		l.mu.Unlock()
	})
}
