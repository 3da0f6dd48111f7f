package http2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// block is a header list in HPACK, without state.
func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

func getBlock(more ...string) []byte {
	return block(append([]string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}, more...)...)
}

// flood is a connection that writes much.
type flood struct {
	*rawConn
	buf bytes.Buffer
}

// send writes what was put into buf; false when the connection is over.
func (f *flood) send() bool {
	_, err := f.Write(f.buf.Bytes())
	f.buf.Reset()
	return err == nil
}

func (f *flood) frame(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	f.buf.Write(appendHead(nil, len(payload), t, flags, id))
	f.buf.Write(payload)
}

// verdict reads until a GOAWAY comes or the connection is over, and gives its code; NO_ERROR where none came.
func verdict(c *rawConn) http2.ErrCode {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return http2.ErrCodeNo
		}
		if g, ok := f.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
			return g.ErrCode
		}
	}
}

var floods = []struct {
	name  string
	abuse Abuse
	// round puts one round of the flood into f.
	round func(f *flood, i int)
}{
	{"rapid reset", RapidReset, func(f *flood, i int) {
		id := uint32(2*i + 1)
		f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, getBlock())
		f.frame(http2.FrameRSTStream, 0, id, []byte{0, 0, 0, 8})
	}},
	{"continuation without end", ContinuationFlood, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, 0, 1, getBlock())
		}
		f.frame(http2.FrameContinuation, 0, 1, block("a", "b"))
	}},
	{"empty continuations", ContinuationFlood, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, 0, 1, nil)
		}
		f.frame(http2.FrameContinuation, 0, 1, nil)
	}},
	{"long continuations", ContinuationFlood, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, 0, 1, nil)
		}
		f.frame(http2.FrameContinuation, 0, 1, bytes.Repeat([]byte{0x82}, 16<<10))
	}},
	{"settings", SettingsFlood, func(f *flood, _ int) { f.frame(http2.FrameSettings, 0, 0, nil) }},
	{"window settings", SettingsFlood, func(f *flood, i int) {
		p := binary.BigEndian.AppendUint32([]byte{0, 4}, uint32(i%2)*1000)
		f.frame(http2.FrameSettings, 0, 0, p)
	}},
	{"ping", PingFlood, func(f *flood, _ int) { f.frame(http2.FramePing, 0, 0, make([]byte, 8)) }},
	{"empty data", EmptyFrames, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, getBlock())
		}
		f.frame(http2.FrameData, 0, 1, nil)
	}},
	{"padded empty data", EmptyFrames, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, getBlock())
		}
		f.frame(http2.FrameData, http2.FlagDataPadded, 1, []byte{3, 0, 0, 0})
	}},
	{"priority", PriorityFlood, func(f *flood, i int) {
		f.frame(http2.FramePriority, 0, uint32(2*i+1), []byte{0, 0, 0, 0, 1})
	}},
	{"window updates", WindowFlood, func(f *flood, i int) {
		f.frame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 1})
	}},
	{"unknown frames", UnknownFrames, func(f *flood, _ int) { f.frame(0x77, 0, 0, []byte("x")) }},
	{"malformed lists", Misbehaviour, func(f *flood, i int) {
		f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, uint32(2*i+1), getBlock("connection", "x"))
	}},
	{"too large lists", Misbehaviour, func(f *flood, i int) {
		f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, uint32(2*i+1), append(getBlock(), bytes.Repeat([]byte{0x82}, 3000)...))
	}},
	{"more streams than allowed", Misbehaviour, func(f *flood, i int) {
		f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, uint32(2*i+1), getBlock())
	}},
	{"data on ended streams", Misbehaviour, func(f *flood, i int) {
		if i == 0 {
			f.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, getBlock())
			f.frame(http2.FrameRSTStream, 0, 1, []byte{0, 0, 0, 8})
		}
		f.frame(http2.FrameData, 0, 1, []byte("x"))
	}},
}

// TestFloods: each kind ends its connection with ENHANCE_YOUR_CALM and is
// counted, and the requests of another client, over the same connections to
// the endpoints, all succeed meanwhile.
func TestFloods(t *testing.T) {
	for _, tt := range floods {
		t.Run(tt.name, func(t *testing.T) {
			backend := startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			rig := startRelay(t, &relayRig{}, backend)
			stop := victim(t, rig.addr)
			f := &flood{rawConn: dialRaw(t, rig.addr)}
			var wg sync.WaitGroup
			over := make(chan struct{})
			wg.Go(func() {
				for i := range 100_000 {
					tt.round(f, i)
					select {
					case <-over:
						return
					default:
					}
					if i%20 == 0 && !f.send() {
						return
					}
				}
			})
			if code := verdict(f.rawConn); code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("the code is %v", code)
			}
			close(over)
			_ = f.Close()
			wg.Wait()
			if served := stop(); served == 0 {
				t.Error("the other client was not served at all")
			}
			testwait.Until(t, "the abuse is counted", func() bool { return rig.abused(tt.abuse) == 1 })
		})
	}
}

// victim sends requests one after another until the function it gives is called, which tells how many succeeded.
func victim(t *testing.T, addr string) func() int64 {
	t.Helper()
	client := goClient(t)
	var served atomic.Int64
	var stopped atomic.Bool
	var wg sync.WaitGroup
	first := make(chan struct{})
	wg.Go(func() {
		begun := sync.OnceFunc(func() { close(first) })
		defer begun()
		for !stopped.Load() {
			resp, err := client.Post("http://"+addr+"/", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Errorf("the other client: %v", err)
				return
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(got) != "hello" {
				t.Errorf("the other client: %q, %v", got, err)
				return
			}
			served.Add(1)
			begun()
		}
	})
	<-first
	return func() int64 {
		stopped.Store(true)
		wg.Wait()
		return served.Load()
	}
}

// TestZeroWindow: a client that gives no window has its stream reset in the
// end; one that closes the connection's window, or reads nothing at all, is closed.
func TestZeroWindow(t *testing.T) {
	backend := startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
	}))
	short := Config{StallTimeout: 200 * time.Millisecond, PingTimeout: 100 * time.Millisecond, PingAfter: time.Hour}
	open := func(c *rawConn) {
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: getBlock(), EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("stream", func(t *testing.T) {
		rig := startRelay(t, &relayRig{cfg: short}, backend)
		stop := victim2(t, rig.addr)
		c := dialRaw(t, rig.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		open(c)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				if r.ErrCode != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("code %v", r.ErrCode)
				}
				break
			}
		}
		stop()
	})
	t.Run("connection", func(t *testing.T) {
		rig := startRelay(t, &relayRig{cfg: short}, backend)
		c := dialRaw(t, rig.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		open(c)
		if code := verdict(c); code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("code %v", code)
		}
		testwait.Until(t, "counted", func() bool { return rig.abused(Stalled) == 1 })
	})
	t.Run("socket", func(t *testing.T) {
		rig := startRelay(t, &relayRig{cfg: short}, backend)
		c := dialRaw(t, rig.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(1)
		if err := c.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		for id := uint32(1); id < 40; id += 2 {
			if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: getBlock(), EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
		}
		testwait.Until(t, "counted", func() bool { return rig.abused(Stalled) == 1 })
	})
}

// victim2 is victim for backends that answer with something else.
func victim2(t *testing.T, addr string) func() {
	t.Helper()
	client := goClient(t)
	get := func() {
		resp, err := client.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || n != 1<<20 {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	get()
	return get
}

// TestOutputFlood: a client that pings and reads nothing is cut when too much waits for it, wherever its budget is.
func TestOutputFlood(t *testing.T) {
	cfg := Config{}
	cfg.Budgets[PingFlood] = Budget{Burst: 1 << 30, PerSecond: 1}
	rig := startRelay(t, &relayRig{cfg: cfg}, startBackend(t, http.NotFoundHandler()))
	f := &flood{rawConn: dialRaw(t, rig.addr)}
	for range 10_000 {
		for range 1000 {
			f.frame(http2.FramePing, 0, 0, make([]byte, 8))
		}
		if !f.send() {
			break
		}
	}
	testwait.Until(t, "counted", func() bool { return rig.abused(OutputFlood) == 1 })
}

// TestHeaderLimits: too large a list is 431, and the connection goes on.
func TestHeaderLimits(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(answer)))
	c := dialRaw(t, rig.addr)
	big := getBlock("x", strings.Repeat("y", 60<<10), "z", strings.Repeat("y", 20<<10))
	c.writeBlock(t, 1, big)
	c.writeBlock(t, 3, getBlock())
	d := hpack.NewDecoder(4096, nil)
	got := map[uint32]string{}
	for len(got) < 2 {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.HeadersFrame); ok && got[h.StreamID] == "" {
			all, err := d.DecodeFull(h.HeaderBlockFragment())
			if err != nil {
				t.Fatal(err)
			}
			got[h.StreamID] = all[0].Value
		}
	}
	if got[1] != "431" || got[3] != "418" {
		t.Errorf("statuses %v", got)
	}
}

// writeBlock sends a list in frames that are small enough, with END_STREAM.
func (c *rawConn) writeBlock(t testing.TB, id uint32, b []byte) {
	t.Helper()
	n := min(len(b), frameSize)
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndHeaders: n == len(b), EndStream: true})
	for b = b[n:]; len(b) > 0 && err == nil; b = b[n:] {
		n = min(len(b), frameSize)
		err = c.WriteContinuation(id, n == len(b), b[:n])
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}
