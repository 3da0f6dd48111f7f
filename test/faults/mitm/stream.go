package mitm

import (
	"bytes"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// initialWindow is each window before SETTINGS and WINDOW_UPDATE (RFC 9113, section 6.9.2).
	initialWindow = 65535
	// frameBytes is the largest frame that every peer takes (RFC 9113, section 4.2). We write none larger.
	frameBytes = 16384
)

// account is the flow-control account of one direction: of a stream, or of a connection.
type account struct {
	// receiver is what the receiver still takes. SETTINGS may make it negative.
	receiver int64
	// sender is what the sender still may send.
	sender int64
	// buffered is what the sender has sent and the receiver not yet been sent. That
	// of a connection leaves out what faults withhold.
	buffered int64
}

// credit gives to the sender what is its due, and returns it: 0 for nothing.
func (a *account) credit() uint32 {
	n := min(a.receiver-a.buffered-a.sender, 1<<31-1)
	if n <= 0 {
		return 0
	}
	a.sender += n
	return uint32(n)
}

// stream is one HTTP/2 stream on both sides.
type stream struct {
	info  Stream
	flows [2]flow // by direction of travel
}

// flow is one direction of a stream.
type flow struct {
	window    account
	assembler assembler
	queue     []item
	// queued is how many bytes of DATA the queue holds; blocked is the part of
	// the connection's buffered bytes that it accounts for.
	queued, blocked int64
	// owed are late messages that wait for the end of one that is passing in pieces.
	owed [][]byte
	// ended: END_STREAM has come. closed: it has been passed on.
	ended, closed bool
}

// item is something that waits for its turn: DATA, HEADERS or a RST_STREAM.
type item struct {
	kind   itemKind
	data   []byte
	fields []hpack.HeaderField
	code   http2.ErrCode
	end    bool      // END_STREAM
	due    time.Time // not before
	rule   any       // why not
}

type itemKind int

const (
	dataItem itemKind = iota
	headersItem
	resetItem
)

func (p *pair) newStream(id uint32, method string) *stream {
	s := &stream{info: Stream{Conn: p.id, ID: id, Method: method}}
	for d := range s.flows {
		s.flows[d].window = account{receiver: p.sides[d].initial, sender: p.sides[d].initial}
	}
	p.streams[id] = s
	p.proxy.tally.add(&p.proxy.tally.stats.Streams, 1)
	return s
}

// lateness gives when a frame of the stream may pass, and which rule says so.
// Without a rule it is the zero time.
func (p *pair) lateness(s *stream) (time.Time, any) {
	rule := p.faults.late(s.info)
	if rule == nil {
		return time.Time{}, nil
	}
	return time.Now().Add(rule.delay), rule
}

// enqueue puts an item at the end of the stream's queue. pump passes it on.
func (p *pair) enqueue(s *stream, d Direction, it item) {
	f := &s.flows[d]
	if it.kind == dataItem {
		n := int64(len(it.data))
		f.queued += n
		f.window.buffered += n
		if f.merge(it) {
			return
		}
		it.data = bytes.Clone(it.data)
	}
	f.queue = append(f.queue, it)
	if !it.due.IsZero() {
		p.postpone(it.due, it.rule, func() { p.pump(s, d) })
	}
}

// merge adds DATA to the queue's last item, if that is of the same kind.
func (f *flow) merge(it item) bool {
	if len(f.queue) == 0 {
		return false
	}
	last := &f.queue[len(f.queue)-1]
	if last.kind != dataItem || last.end || !last.due.Equal(it.due) {
		return false
	}
	last.data = append(last.data, it.data...)
	last.end = it.end
	return true
}

// pump passes on what may pass of one direction of a stream, and keeps the accounts of its windows.
func (p *pair) pump(s *stream, d Direction) {
	if p.streams[s.info.ID] != s {
		return // it has ended
	}
	f, to := &s.flows[d], p.sides[d]
	full := false
	for len(f.queue) > 0 && !full {
		it := &f.queue[0]
		if it.due.After(time.Now()) || (it.kind == dataItem || it.end) && p.faults.stalled(s.info) {
			break
		}
		switch it.kind {
		case headersItem:
			to.writeHeaders(s.info.ID, it.fields, it.end)
		case resetItem:
			p.resetStream(s, d, it.code)
			return
		case dataItem:
			if full = !f.writeData(s.info.ID, to); full {
				continue
			}
		}
		f.closed = f.closed || it.end
		f.queue = f.queue[1:]
	}
	waiting := int64(0)
	if full {
		waiting = f.queued
	}
	to.window.buffered += waiting - f.blocked
	f.blocked = waiting
	p.giveCredit(s, d)
	p.forget(s)
}

// writeData writes of the queue's first item what the windows allow. It returns
// whether that was all of it.
func (f *flow) writeData(id uint32, to *side) bool {
	it := &f.queue[0]
	for {
		n := max(0, min(int64(len(it.data)), f.window.receiver, to.window.receiver, frameBytes))
		if n == 0 && len(it.data) > 0 {
			return false
		}
		rest := it.data[n:]
		_ = to.framer.WriteData(id, it.end && len(rest) == 0, it.data[:n]) // to memory
		it.data = rest
		f.queued -= n
		f.window.buffered -= n
		f.window.receiver -= n
		to.window.receiver -= n
		if len(rest) == 0 {
			return true
		}
	}
}

// giveCredit gives the sender its due of the stream's and the connection's window.
func (p *pair) giveCredit(s *stream, d Direction) {
	sender, f := p.sides[d.other()], &s.flows[d]
	if n := f.window.credit(); n > 0 && !f.ended {
		_ = sender.framer.WriteWindowUpdate(s.info.ID, n)
	}
	if missing := int64(f.assembler.missing) - f.window.sender; f.assembler.withheld && missing > 0 && !f.ended {
		_ = sender.framer.WriteWindowUpdate(s.info.ID, uint32(missing))
		f.window.sender += missing
	}
	p.giveConnectionCredit(d)
}

func (p *pair) giveConnectionCredit(d Direction) {
	if n := p.sides[d].window.credit(); n > 0 {
		_ = p.sides[d.other()].framer.WriteWindowUpdate(0, n)
	}
}

// pumpAll passes on what may pass of all streams in direction d.
func (p *pair) pumpAll(d Direction) {
	for _, s := range p.inOrder() {
		p.pump(s, d)
	}
	p.giveConnectionCredit(d)
}

// resetStream passes a RST_STREAM on. What waits of the stream is lost.
func (p *pair) resetStream(s *stream, d Direction, code http2.ErrCode) {
	_ = p.sides[d].framer.WriteRSTStream(s.info.ID, code)
	delete(p.streams, s.info.ID)
	for d := range s.flows {
		p.sides[d].window.buffered -= s.flows[d].blocked
		p.giveConnectionCredit(Direction(d))
	}
}

// forget forgets the stream if both of its directions have ended.
func (p *pair) forget(s *stream) {
	if s.flows[ToClient].closed && s.flows[ToServer].closed {
		delete(p.streams, s.info.ID)
	}
}

// writeHeaders encodes a header block into HEADERS and CONTINUATION frames.
func (s *side) writeHeaders(id uint32, fields []hpack.HeaderField, end bool) {
	s.block.Reset()
	for _, f := range fields {
		_ = s.encoder.WriteField(f) // to memory
	}
	first := s.block.Next(frameBytes)
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: s.block.Len() == 0})
	for s.block.Len() > 0 {
		next := s.block.Next(frameBytes)
		_ = s.framer.WriteContinuation(id, s.block.Len() == 0, next)
	}
}
