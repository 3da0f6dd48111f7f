package http2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const headLen = 9

// appendHead appends a frame's header. x/net's Framer reads for us; it does
// not write, because it would copy everything once more.
func appendHead(dst []byte, length int, t http2.FrameType, flags http2.Flags, id uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

func appendData(dst []byte, id uint32, p []byte, end bool) []byte {
	var flags http2.Flags
	if end {
		flags = http2.FlagDataEndStream
	}
	return append(appendHead(dst, len(p), http2.FrameData, flags, id), p...)
}

// finishHeaders makes HEADERS, and CONTINUATION where the block is longer than
// a frame may be, of the block that begins at dst[at+headLen].
func finishHeaders(dst []byte, at int, id uint32, end bool, longest int) []byte {
	flags := http2.Flags(0)
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	n := len(dst) - at - headLen
	if n <= longest {
		appendHead(dst[:at], n, http2.FrameHeaders, flags|http2.FlagHeadersEndHeaders, id)
		return dst
	}
	rest := append([]byte(nil), dst[at+headLen+longest:]...)
	appendHead(dst[:at], longest, http2.FrameHeaders, flags, id)
	dst = dst[:at+headLen+longest]
	for len(rest) > 0 {
		n := min(len(rest), longest)
		flags = 0
		if n == len(rest) {
			flags = http2.FlagContinuationEndHeaders
		}
		dst = append(appendHead(dst, n, http2.FrameContinuation, flags, id), rest[:n]...)
		rest = rest[n:]
	}
	return dst
}

func appendWindowUpdate(dst []byte, id uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(appendHead(dst, 4, http2.FrameWindowUpdate, 0, id), uint32(n))
}

func appendReset(dst []byte, id uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendHead(dst, 4, http2.FrameRSTStream, 0, id), uint32(code))
}

func appendPing(dst []byte, ack bool, data uint64) []byte {
	var flags http2.Flags
	if ack {
		flags = http2.FlagPingAck
	}
	return binary.BigEndian.AppendUint64(appendHead(dst, 8, http2.FramePing, flags, 0), data)
}

func appendGoAway(dst []byte, last uint32, code http2.ErrCode, text string) []byte {
	dst = appendHead(dst, 8+len(text), http2.FrameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, text...)
}

func appendSettings(dst []byte, all ...http2.Setting) []byte {
	dst = appendHead(dst, 6*len(all), http2.FrameSettings, 0, 0)
	for _, s := range all {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.ID))
		dst = binary.BigEndian.AppendUint32(dst, s.Val)
	}
	return dst
}

func appendSettingsAck(dst []byte) []byte {
	return appendHead(dst, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
}

// unpad gives a payload without its padding, and how long the padding was.
func unpad(fh http2.FrameHeader, p []byte) ([]byte, int, error) {
	// The flag is the same for DATA and HEADERS.
	if !fh.Flags.Has(http2.FlagDataPadded) {
		return p, 0, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, 0, protocolError("the padding is longer than its frame")
	}
	n := int(p[0])
	return p[1 : len(p)-n], n + 1, nil
}
