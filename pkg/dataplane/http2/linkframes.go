package http2

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"
)

// headers is a header block with what its first frame said.
type headers struct {
	id    uint32
	end   bool
	block []byte
	// loop: the stream is said to depend on itself.
	loop bool
}

// framerError makes a ConnError of an error of the framer's.
func (l *link) framerError(err error) error {
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
	if fh.Type == http2.FrameSettings || fh.Type == http2.FrameGoAway || fh.Type == http2.FramePushPromise {
		return l.parsed(t, fh)
	}
	// p is used up; its bytes stay where they are until the next frame is read.
	l.from += len(p)
	switch fh.Type {
	case http2.FrameData:
		if fh.StreamID == 0 {
			return protocolError("DATA on stream 0")
		}
		return l.side.data(t, fh, p)
	case http2.FrameHeaders, http2.FrameContinuation:
		return l.block(t, fh, p)
	case http2.FrameWindowUpdate:
		return l.window(t, fh, p)
	case http2.FrameRSTStream:
		return l.resetStream(t, fh, p)
	case http2.FramePing:
		return l.ping(t, fh, p)
	case http2.FramePriority:
		return l.priority(t, fh, p)
	default:
		return l.charge(UnknownFrames)
	}
}

// resetStream takes an RST_STREAM (RFC 9113 section 6.4).
func (l *link) resetStream(t *Turn, fh http2.FrameHeader, p []byte) error {
	if len(p) != 4 {
		return &ConnError{Code: http2.ErrCodeFrameSize, Text: "RST_STREAM that has not 4 bytes"}
	}
	if fh.StreamID == 0 {
		return protocolError("RST_STREAM on stream 0")
	}
	return l.side.reset(t, fh.StreamID, http2.ErrCode(binary.BigEndian.Uint32(p)))
}

// priority checks what the framer would, and else ignores it (RFC 9113 section 5.3.2).
func (l *link) priority(t *Turn, fh http2.FrameHeader, p []byte) error {
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
}

// parsed sees to the frames that are rare. x/net's framer reads their payload, which link.next has only made sure of.
func (l *link) parsed(t *Turn, fh http2.FrameHeader) error {
	f, err := l.framer.ReadFrameForHeader(fh)
	if err != nil {
		return l.framerError(err)
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

// window takes a WINDOW_UPDATE (RFC 9113 section 6.9).
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
	known, err := l.side.windowUpdated(t, fh.StreamID, n)
	if !known {
		return protocolError("WINDOW_UPDATE on a stream that never was")
	}
	return err
}

// ping answers a PING, or notes the answer to ours (RFC 9113 section 6.7).
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
	l.seize()
	err := f.ForeachSetting(func(s http2.Setting) error { return l.setting(s) })
	if err == nil {
		l.send(t, appendSettingsAck(l.put().b))
		_, err = l.side.windowUpdated(t, 0, 0)
	}
	l.yield()
	if err != nil {
		return l.asConnError(err)
	}
	l.side.settingsTaken(t, first)
	return l.charge(SettingsFlood)
}

func (l *link) asConnError(err error) error {
	if _, ok := errors.AsType[*ConnError](err); ok {
		return err
	}
	return l.framerError(err)
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
		if !l.side.initialWindowChanged(delta) {
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
		if _, ok := l.side.(*endpointConn); ok && s.Val != 0 {
			return protocolError("a server enables push")
		}
	case http2.SettingMaxHeaderListSize:
	default:
	}
	return nil
}
