package mitm

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// pendingBytes is how much may wait for a socket before reading stops.
	pendingBytes = 1 << 20
	// lingerTime bounds the end of a connection: what is pending is written, and
	// the peer's FIN is waited for, so that our close does not become a RST.
	lingerTime = time.Second
	// tableBytes is the largest HPACK table that we accept; headerListBytes the
	// largest header list.
	tableBytes, headerListBytes = 1 << 20, 1 << 20
)

// pair is one relayed connection: a client's, and ours to the target.
type pair struct {
	proxy *Proxy
	id    int

	in       chan event
	commands chan command
	quit     chan struct{} // closed when the owner has left its loop
	done     chan struct{} // closed when all goroutines have ended

	// Owned by run.

	// sides are the peers by the direction in which frames travel to them.
	sides   [2]*side
	faults  *faults
	streams map[uint32]*stream
	lastID  uint32 // the highest stream id that the client has opened
	// held are the withheld WINDOW_UPDATE frames by direction of travel.
	held  [2][]update
	late  lateHeap
	seq   int // of the last in late
	timer *time.Timer
	// dead tells that HalfOpen has struck: bytes are lost, and each side ends by itself.
	dead bool
	open int // sides that have not ended
	// over ends the loop; reset tells that the sides then end with RST.
	over, reset bool
}

// side is one peer.
type side struct {
	conn *net.TCPConn
	// resume lets the reader go on: the owner no longer uses its frame.
	resume chan struct{}
	out    chan []byte // to the writer

	// Owned by run.

	// window is the account of the connection's window for DATA that travels to this peer.
	window account
	// initial is the window that this peer gives to new streams.
	initial int64
	// buffer is what the framer has written and the writer has not yet taken.
	buffer  bytes.Buffer
	framer  *http2.Framer
	block   bytes.Buffer // where encoder writes to
	encoder *hpack.Encoder
}

// event is what a reader hands over: a frame, the client's preface (neither
// frame nor err), or the end.
type event struct {
	travels Direction
	frame   http2.Frame
	err     error
}

type command struct {
	do   func(*pair)
	done chan struct{}
}

func newPair(proxy *Proxy, id int, client, server *net.TCPConn) *pair {
	p := &pair{
		proxy: proxy, id: id,
		in: make(chan event), commands: make(chan command), quit: make(chan struct{}), done: make(chan struct{}),
		streams: make(map[uint32]*stream), timer: time.NewTimer(0), open: 2,
	}
	p.sides[ToClient], p.sides[ToServer] = newSide(client), newSide(server)
	return p
}

func newSide(conn *net.TCPConn) *side {
	s := &side{
		conn: conn, resume: make(chan struct{}), out: make(chan []byte),
		window: account{receiver: initialWindow, sender: initialWindow}, initial: initialWindow,
	}
	s.framer = http2.NewFramer(&s.buffer, nil)
	s.framer.AllowIllegalWrites = true // what a peer may say to the other is theirs to judge
	s.encoder = hpack.NewEncoder(&s.block)
	return s
}

// run carries the pair to its end, and closes both connections.
func (p *pair) run() {
	defer close(p.done)
	defer p.timer.Stop()
	p.faults = p.proxy.faults.Load()
	var readers, writers sync.WaitGroup
	for d, s := range p.sides {
		readers.Go(func() { p.read(Direction(d).other(), s) })
		writers.Go(func() { s.write() })
	}
	p.loop()
	close(p.quit)
	for _, s := range p.sides {
		_ = s.conn.SetDeadline(time.Now().Add(lingerTime))
		if s.buffer.Len() > 0 && !p.dead {
			s.out <- s.buffer.Bytes() // the writer goes on until the deadline at the latest
		}
		close(s.out)
	}
	writers.Wait()
	for _, s := range p.sides {
		if p.reset {
			closeReset(s.conn)
		} else {
			_ = s.conn.CloseWrite()
		}
	}
	readers.Wait()
	for _, s := range p.sides {
		s.conn.Close()
	}
}

func (p *pair) loop() {
	for !p.over {
		in, timer := p.in, p.timer.C
		var out [2]chan<- []byte
		var chunks [2][]byte
		frozen := p.faults.freeze > 0
		for d, s := range p.sides {
			if s.buffer.Len() > 0 && !p.dead {
				out[d], chunks[d] = s.out, s.buffer.Bytes()
			}
			if s.buffer.Len() > pendingBytes {
				in = nil
			}
		}
		if frozen {
			in, timer, out = nil, nil, [2]chan<- []byte{}
		} else {
			p.arm()
		}
		select {
		case e := <-in:
			p.handle(e)
		case out[ToClient] <- chunks[ToClient]:
			p.sides[ToClient].buffer = bytes.Buffer{}
		case out[ToServer] <- chunks[ToServer]:
			p.sides[ToServer].buffer = bytes.Buffer{}
		case <-timer:
			p.expire()
		case c := <-p.commands:
			c.do(p)
			close(c.done)
		}
	}
}

// handle takes one event of a reader, and lets the reader go on.
func (p *pair) handle(e event) {
	reader := p.sides[e.travels.other()]
	switch {
	case p.dead && e.err != nil:
		reader.conn.Close()
		if p.open--; p.open == 0 {
			p.over = true
		}
		return
	case p.dead: // lost
	case e.err != nil:
		p.over, p.reset = true, errors.Is(e.err, syscall.ECONNRESET)
		if !isEnd(e.err) {
			p.proxy.tally.add(&p.proxy.tally.stats.Broken, 1)
		}
		return
	default:
		if err := p.receive(e.travels, e.frame); err != nil {
			p.proxy.tally.add(&p.proxy.tally.stats.Broken, 1)
			p.over = true
			return
		}
	}
	reader.resume <- struct{}{}
}

// command has the owner call do and waits for it, or for the pair's end.
func (p *pair) command(do func(*pair)) {
	c := command{do: do, done: make(chan struct{})}
	select {
	case p.commands <- c:
		<-c.done
	case <-p.quit:
	}
}

// isEnd tells an ended connection from bytes that are not HTTP/2.
func isEnd(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// kill begins the state of HalfOpen.
func (p *pair) kill() {
	p.dead = true
	p.streams, p.late, p.held = make(map[uint32]*stream), nil, [2][]update{}
}

// abort closes both sides now.
func (p *pair) abort(reset bool) {
	p.over, p.reset = true, reset
	for _, s := range p.sides {
		if reset {
			closeReset(s.conn)
		} else {
			_ = s.conn.CloseWrite()
		}
	}
}

// read hands over one frame after the other, until an error or the owner's end;
// then it reads the rest away, so that a close of ours is not taken for a reset.
func (p *pair) read(travels Direction, s *side) {
	reader := bufio.NewReader(s.conn)
	framer := http2.NewFramer(nil, reader)
	framer.SetMaxReadFrameSize(1<<24 - 1) // the peers hold to each other's limit
	framer.MaxHeaderListSize = headerListBytes
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(tableBytes)
	var e event
	if travels == ToServer {
		e = event{travels: travels, err: readPreface(reader)}
		if !p.offer(e, s) {
			return
		}
	}
	for {
		frame, err := framer.ReadFrame()
		if !p.offer(event{travels: travels, frame: frame, err: err}, s) {
			return
		}
	}
}

// offer hands an event over and waits until it is dealt with. It returns false
// when nothing more is to be read.
func (p *pair) offer(e event, s *side) bool {
	select {
	case p.in <- e:
	case <-p.quit:
		_, _ = io.Copy(io.Discard, s.conn)
		return false
	}
	select {
	case <-s.resume:
		return true
	case <-p.quit:
		_, _ = io.Copy(io.Discard, s.conn)
		return false
	}
}

func readPreface(r io.Reader) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return fmt.Errorf("not HTTP/2 with prior knowledge: %q", preface)
	}
	return nil
}

// write writes until the owner closes s.out. After an error the bytes are
// dropped: the reader of this side learns why.
func (s *side) write() {
	var err error
	for b := range s.out {
		if err == nil {
			_, err = s.conn.Write(b)
		}
	}
}

// arm sets the timer to the earliest of what is late.
func (p *pair) arm() {
	if len(p.late) == 0 {
		p.timer.Stop()
		return
	}
	p.timer.Reset(time.Until(p.late[0].due))
}

// expire does what is due.
func (p *pair) expire() {
	now := time.Now()
	for len(p.late) > 0 && !p.late[0].due.After(now) {
		heap.Pop(&p.late).(*lateItem).run()
	}
}
