package http2

import "golang.org/x/net/http2"

// ending is how a stream ended.
type ending struct {
	id uint32
	// ours: we reset it, so its peer may not know yet. whole: both sides ended it. reset and trailed: its peer
	// reset it too, or ended it with trailers.
	ours, whole, reset, trailed bool
}

// remembered is of how many streams a connection knows how they ended.
const remembered = 256

// note remembers how a stream ended, and forgets the oldest. It needs mu.
func (v *Server) note(e ending) {
	if v.endings < remembered {
		v.closed = append(v.closed, e)
	} else {
		v.closed[v.endings%remembered] = e
	}
	v.endings++
}

// endingOf tells how a stream ended; nil where that is not remembered. It needs mu.
func (v *Server) endingOf(id uint32) *ending {
	for i := range v.closed {
		if v.closed[i].id == id {
			return &v.closed[i]
		}
	}
	return nil
}

// lateHeaders is a list on a stream that is over. It needs mu.
func (v *Server) lateHeaders(t *Turn, h *headers) error {
	if err := v.dec.Skip(h.block); err != nil {
		return &ConnError{Code: http2.ErrCodeCompression, Text: err.Error()}
	}
	e := v.endingOf(h.id)
	switch {
	case e != nil && e.whole:
		return &ConnError{Code: http2.ErrCodeStreamClosed, Text: "HEADERS on a stream that has ended"}
	case e != nil && e.ours && !e.trailed:
		// They were on their way when we reset it.
		e.trailed = true
		return nil
	case e != nil && e.ours:
		return v.spend(Misbehaviour)
	case e == nil && v.endings < remembered:
		return protocolError("a stream's number is lower than one before")
	}
	return v.refused(t, h.id, http2.ErrCodeStreamClosed)
}

// lateData is data on a stream that is over. It needs mu.
func (v *Server) lateData(t *Turn, fh http2.FrameHeader) error {
	if fh.StreamID > v.lastID || fh.StreamID%2 == 0 {
		return protocolError("DATA on a stream that never was")
	}
	if e := v.endingOf(fh.StreamID); e != nil && e.ours {
		return nil
	}
	return v.refused(t, fh.StreamID, http2.ErrCodeStreamClosed)
}

// lateReset is the reset of a stream that is over: gRPC's clients reset each call that was ended before they had said all.
// It needs mu.
func (v *Server) lateReset(id uint32) error {
	if e := v.endingOf(id); e != nil && !e.reset {
		e.reset = true
		return nil
	}
	return v.spend(RapidReset)
}
