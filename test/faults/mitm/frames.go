package mitm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// The ways in which a connection ends as Stats.Broken.
var (
	errPush   = errors.New("server push is not relayed")
	errWindow = errors.New("more DATA than the connection's window allows")
	errList   = errors.New("header list too long")
)

// update is a WINDOW_UPDATE frame. Stream 0 is the connection.
type update struct {
	id uint32
	n  int64
}

// receive relays one frame, which is valid only during the call. A nil frame is the client's preface.
func (p *pair) receive(travels Direction, frame http2.Frame) error {
	to := p.sides[travels]
	switch f := frame.(type) {
	case nil:
		to.buffer.WriteString(http2.ClientPreface)
	case *http2.DataFrame:
		return p.receiveData(travels, f)
	case *http2.MetaHeadersFrame:
		return p.receiveHeaders(travels, f)
	case *http2.RSTStreamFrame:
		p.receiveReset(travels, f)
	case *http2.WindowUpdateFrame:
		p.receiveUpdate(travels, update{id: f.StreamID, n: int64(f.Increment)})
	case *http2.SettingsFrame:
		return p.receiveSettings(travels, f)
	case *http2.PingFrame:
		return p.receivePing(travels, f)
	case *http2.GoAwayFrame:
		return to.framer.WriteGoAway(f.LastStreamID, f.ErrCode, f.DebugData())
	case *http2.PriorityFrame:
		return to.framer.WritePriority(f.StreamID, f.PriorityParam)
	case *http2.PriorityUpdateFrame:
		return to.framer.WritePriorityUpdate(f.PrioritizedStreamID, f.Priority)
	case *http2.UnknownFrame:
		return to.framer.WriteRawFrame(f.Type, f.Flags, f.StreamID, f.Payload())
	case *http2.PushPromiseFrame:
		return errPush
	default:
		return fmt.Errorf("frame %s is not expected", frame.Header())
	}
	return nil
}

// receivePing relays a PING. While the proxy holds more DATA for this peer than
// its windows take, it answers itself: gRPC measures its bandwidth by a PING for each
// burst of DATA, and the other side, which has long sent that DATA, would
// end the connection for too many of them.
func (p *pair) receivePing(travels Direction, f *http2.PingFrame) error {
	stats, from := &p.proxy.tally.stats, p.sides[travels.other()]
	switch {
	case f.IsAck():
	case from.window.buffered > 0:
		p.proxy.tally.add(&stats.AnsweredPings, 1)
		return from.framer.WritePing(true, f.Data)
	default:
		p.proxy.tally.add(&stats.Pings[travels], 1)
	}
	return p.sides[travels].framer.WritePing(f.IsAck(), f.Data)
}

// receiveSettings takes note of what concerns us, and passes the frame on. The
// windows count from now: the announcer takes so much from when it has said so.
func (p *pair) receiveSettings(travels Direction, f *http2.SettingsFrame) error {
	to, announcer := p.sides[travels], p.sides[travels.other()]
	if f.IsAck() {
		return to.framer.WriteSettingsAck()
	}
	var all []http2.Setting
	_ = f.ForeachSetting(func(s http2.Setting) error {
		all = append(all, s)
		switch s.ID { //nolint:exhaustive // the others concern the peers alone
		case http2.SettingHeaderTableSize:
			announcer.encoder.SetMaxDynamicTableSize(min(s.Val, 4096))
		case http2.SettingInitialWindowSize:
			more := int64(s.Val) - announcer.initial
			announcer.initial = int64(s.Val)
			for _, each := range p.streams {
				w := &each.flows[travels.other()].window
				w.receiver += more
				w.sender += more
			}
		}
		return nil
	})
	if err := to.framer.WriteSettings(all...); err != nil {
		return fmt.Errorf("write SETTINGS: %w", err)
	}
	p.pumpAll(travels.other())
	return nil
}

// receiveUpdate deals with a WINDOW_UPDATE, which is for DATA of the other direction.
func (p *pair) receiveUpdate(travels Direction, u update) {
	if p.faults.hold[travels] > 0 {
		p.held[travels] = append(p.held[travels], u)
		p.proxy.tally.add(&p.proxy.tally.stats.HeldUpdates, 1)
		return
	}
	s := p.streams[u.id]
	if s == nil {
		p.apply(travels, u)
		return
	}
	due, rule := p.lateness(s)
	if rule == nil {
		p.apply(travels, u)
		return
	}
	p.postpone(due, rule, func() { p.apply(travels, u) })
}

func (p *pair) apply(travels Direction, u update) {
	d := travels.other()
	if u.id == 0 {
		p.sides[d].window.receiver += u.n
		p.pumpAll(d)
	} else if s := p.streams[u.id]; s != nil {
		s.flows[d].window.receiver += u.n
		p.pump(s, d)
	}
}

func (p *pair) receiveReset(travels Direction, f *http2.RSTStreamFrame) {
	s := p.streams[f.StreamID]
	if s == nil {
		return
	}
	due, rule := p.lateness(s)
	waits := f.ErrCode == http2.ErrCodeNo && s.flows[travels].ended
	if rule == nil && !waits {
		p.resetStream(s, travels, f.ErrCode)
		return
	}
	p.enqueue(s, travels, item{kind: resetItem, code: f.ErrCode, due: due, rule: rule})
	p.pump(s, travels)
}

func (p *pair) receiveHeaders(travels Direction, f *http2.MetaHeadersFrame) error {
	if f.Truncated {
		return errList
	}
	s, end := p.streams[f.StreamID], f.StreamEnded()
	if s == nil {
		if travels == ToClient || f.StreamID <= p.lastID {
			return nil // of a stream that has been reset
		}
		p.lastID = f.StreamID
		s = p.newStream(f.StreamID, f.PseudoValue("path"))
		s.flows[travels].ended, s.flows[travels].closed = end, end
		p.sides[travels].writeHeaders(f.StreamID, f.Fields, end)
		return nil
	}
	due, rule := p.lateness(s)
	if end {
		p.end(s, travels, due, rule)
	}
	p.enqueue(s, travels, item{kind: headersItem, fields: f.Fields, end: end, due: due, rule: rule})
	p.pump(s, travels)
	return nil
}

// end notes that nothing more comes, and gives free a message that is not whole.
func (p *pair) end(s *stream, d Direction, due time.Time, rule any) {
	f := &s.flows[d]
	f.ended = true
	p.proxy.tally.add(&p.proxy.tally.stats.Lost, len(f.owed))
	f.owed = nil
	if !f.assembler.withheld {
		return
	}
	raw, _ := f.assembler.next()
	f.window.buffered -= int64(len(raw))
	p.enqueue(s, d, item{data: raw, due: due, rule: rule})
}

func (p *pair) receiveData(travels Direction, frame *http2.DataFrame) error {
	connection := &p.sides[travels].window
	if connection.sender -= int64(frame.Length); connection.sender < 0 {
		return errWindow
	}
	s := p.streams[frame.StreamID]
	if s == nil || s.flows[travels].ended {
		p.giveConnectionCredit(travels) // of a stream that has been reset
		return nil
	}
	f := &s.flows[travels]
	f.window.sender -= int64(frame.Length)
	due, rule := p.lateness(s)
	for b := frame.Data(); len(b) > 0; {
		b = b[p.receivePiece(s, travels, b, due, rule):]
	}
	if frame.StreamEnded() {
		p.end(s, travels, due, rule)
		p.enqueue(s, travels, item{end: true, due: due, rule: rule})
	}
	p.pump(s, travels)
	return nil
}

// receivePiece takes from b what belongs to one message, and returns how much that was.
func (p *pair) receivePiece(s *stream, d Direction, b []byte, due time.Time, rule any) int {
	f := &s.flows[d]
	a := &f.assembler
	if !a.begun() {
		a.withheld = len(p.faults.messages) > 0
	}
	n, whole := a.take(b)
	if a.withheld {
		f.window.buffered += int64(n)
	} else {
		p.enqueue(s, d, item{data: b[:n], due: due, rule: rule})
	}
	if a.blind && a.withheld {
		f.window.buffered -= int64(len(a.raw))
		p.enqueue(s, d, item{data: a.raw, due: due, rule: rule})
		a.withheld = false
	}
	if !whole {
		return n
	}
	withheld := a.withheld
	raw, blind := a.next()
	defer p.pay(s, d)
	if blind {
		p.proxy.tally.add(&p.proxy.tally.stats.Unexamined, 1)
		return n
	}
	m := p.message(s, d, raw)
	if withheld {
		f.window.buffered -= int64(len(raw))
		p.judge(s, m, raw, due, rule)
	}
	return n
}

// message decodes and counts a whole message, and shows it to the observers.
func (p *pair) message(s *stream, d Direction, raw []byte) Message {
	m := Message{Stream: s.info, Direction: d, Compressed: raw[0] != 0, Body: raw[prefixBytes:]}
	node := m.decode()
	if s.info.NodeID == "" {
		s.info.NodeID = node
		m.Stream = s.info
	}
	p.proxy.tally.message(&m)
	for _, observe := range p.faults.observers {
		(*observe)(m)
	}
	return m
}

// judge does to a message what the faults say. due and rule are those of DelayOthers.
func (p *pair) judge(s *stream, m Message, raw []byte, due time.Time, rule any) {
	d, stats := m.Direction, &p.proxy.tally.stats
	if p.faults.find(swallow, m) != nil {
		p.proxy.tally.add(&stats.Swallowed, 1)
		return
	}
	if p.faults.find(duplicate, m) != nil {
		p.proxy.tally.add(&stats.Duplicated, 1)
		raw = slices.Concat(raw, raw)
	}
	late := p.faults.find(delay, m)
	if late == nil {
		p.enqueue(s, d, item{data: raw, due: due, rule: rule})
		return
	}
	p.proxy.tally.add(&stats.Delayed, 1)
	f := &s.flows[d]
	f.window.buffered += int64(len(raw))
	p.postpone(time.Now().Add(late.delay), late, func() {
		if p.streams[m.Stream.ID] != s || f.ended {
			p.proxy.tally.add(&stats.Lost, 1)
			return
		}
		p.insert(s, d, raw)
	})
}

// insert adds a message that comes late. It must not fall into one that is
// passing in pieces: then it waits for that one's end.
func (p *pair) insert(s *stream, d Direction, raw []byte) {
	f := &s.flows[d]
	if f.assembler.begun() && !f.assembler.withheld {
		f.owed = append(f.owed, raw)
		return
	}
	f.window.buffered -= int64(len(raw))
	p.enqueue(s, d, item{data: raw})
	p.pump(s, d)
}

// pay adds the messages that insert could not add. The caller pumps.
func (p *pair) pay(s *stream, d Direction) {
	f := &s.flows[d]
	owed := f.owed
	f.owed = nil
	for _, raw := range owed {
		f.window.buffered -= int64(len(raw))
		p.enqueue(s, d, item{data: raw})
	}
}

// adopt takes the faults in force, and passes on what they no longer withhold.
func (p *pair) adopt() {
	p.faults = p.proxy.faults.Load()
	if p.dead {
		return
	}
	for d := range p.held {
		if p.faults.hold[d] > 0 {
			continue
		}
		held := p.held[d]
		p.held[d] = nil
		for _, u := range held {
			p.apply(Direction(d), u)
		}
	}
	p.pumpAll(ToClient)
	p.pumpAll(ToServer)
}

// inOrder gives the streams by id.
func (p *pair) inOrder() []*stream {
	ordered := make([]*stream, 0, len(p.streams))
	for _, id := range slices.Sorted(maps.Keys(p.streams)) {
		ordered = append(ordered, p.streams[id])
	}
	return ordered
}
