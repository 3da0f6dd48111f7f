package faults

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// A time namespace moves only the clocks that do not jump in life, and to set
// the machine's clock needs the machine. So the wall clock of one process is moved
// where it is read: in the code that the kernel maps into it for clock_gettime (the vDSO), which
// the process's parent may write to, as a debugger does for a breakpoint. The
// programs are the unchanged ones, and their monotonic clocks run on.

// wallClock is the wall clock of one process.
type wallClock struct {
	t      testing.TB
	memory *os.File
	// ahead is where the process reads by how many seconds its clock is ahead.
	ahead int64
}

// reading replaces clock_gettime: the system call, and to CLOCK_REALTIME the
// number of seconds is added that follows the code.
//
//	mov eax, 228; syscall; test edi, edi; jne +10; mov rcx, [rip+6]; add [rsi], rcx; ret; nop; nop
var reading = []byte{
	0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a,
	0x48, 0x8b, 0x0d, 0x06, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90,
}

// takeClock takes over the wall clock of a process.
func takeClock(t testing.TB, p *interoptest.Process) *wallClock {
	t.Helper()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.Pid()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	c := &wallClock{t: t, memory: memory}
	start, size := vdso(t, p.Pid())
	image := make([]byte, size)
	if _, err := memory.ReadAt(image, start); err != nil {
		t.Fatalf("read the vDSO: %v", err)
	}
	entry := start + clockEntry(t, image)
	// The image ends within its last page: nothing else is there.
	free := int64(len(image) - 64)
	if len(bytes.Trim(image[free:], "\x00")) != 0 {
		t.Fatal("the vDSO has no free bytes at its end")
	}
	c.ahead = start + free + int64(len(reading))
	c.write(start+free, reading)
	// Nobody may be in the middle of the bytes that become a jump.
	for done := false; !done; {
		p.Signal(syscall.SIGSTOP)
		if done = stoppedOutside(t, p.Pid(), entry, entry+5); done {
			c.write(entry, binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(start+free-entry-5)))) //nolint:gosec // within one mapping
		}
		p.Signal(syscall.SIGCONT)
	}
	return c
}

// jump sets by how much the clock is ahead of the real one.
func (c *wallClock) jump(ahead time.Duration) {
	c.t.Helper()
	c.write(c.ahead, binary.LittleEndian.AppendUint64(nil, uint64(int64(ahead/time.Second)))) //nolint:gosec // two's complement is meant
}

func (c *wallClock) write(at int64, b []byte) {
	c.t.Helper()
	if _, err := c.memory.WriteAt(b, at); err != nil {
		c.t.Fatalf("write to the vDSO of a child: %v", err)
	}
}

// vdso gives where the kernel's code is mapped in a process.
func vdso(t testing.TB, pid int) (start int64, size int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		return from, int(to - from)
	}
	t.Fatal("no vDSO")
	return 0, 0
}

// clockEntry gives where clock_gettime begins in the image.
func clockEntry(t testing.TB, image []byte) int64 {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatalf("vDSO: %v", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatalf("vDSO: %v", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= 5 {
			return int64(s.Value) //nolint:gosec // an offset
		}
	}
	t.Fatal("no clock_gettime in the vDSO")
	return 0
}

// stoppedOutside waits until every thread of a process has stopped, and tells
// whether none stopped within a range of code.
func stoppedOutside(t testing.TB, pid int, from, to int64) bool {
	t.Helper()
	outside := true
	testwait.Within(t, startTime, "stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads: %v", err)
		}
		outside = true
		for _, thread := range threads {
			state, err := os.ReadFile(filepath.Join(thread, "stat"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if i := bytes.LastIndexByte(state, ')'); i < 0 || !bytes.HasPrefix(state[i:], []byte(") T")) {
				return false
			}
			where, err := os.ReadFile(filepath.Join(thread, "syscall"))
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(string(where))
			pc, err := strconv.ParseInt(strings.TrimPrefix(words[len(words)-1], "0x"), 16, 64)
			if err != nil {
				return false // "running": not stopped yet
			}
			outside = outside && (pc < from || pc >= to)
		}
		return true
	})
	return outside
}

// wantClock waits until a program says in its answers that it is as late as we want.
func wantClock(t testing.TB, admin, path string, ahead time.Duration) {
	t.Helper()
	testwait.Within(t, startTime, fmt.Sprintf("the clock of the process %v ahead", ahead), func() bool {
		response, err := http.Get("http://" + admin + path) //nolint:noctx,gosec // an address of ours
		if err != nil {
			return false
		}
		response.Body.Close()
		says, err := http.ParseTime(response.Header.Get("Date"))
		return err == nil && time.Until(says.Add(-ahead)).Abs() < time.Minute
	})
}

// clockFaults are the cases of a wall clock that jumps.
var clockFaults = []fault{
	{
		name: "clock of the node: an hour ahead, then an hour behind", clients: []kind{dataplane, envoyDelta, envoySotW},
		change: func(w *world) {
			var clocks []*wallClock
			for _, c := range w.clients {
				clocks = append(clocks, takeClock(w.t, c.process()))
			}
			w.turnoverAt(func(ahead time.Duration) {
				for i, c := range w.clients {
					clocks[i].jump(ahead)
					wantClock(w.t, c.admin, "/server_info", ahead)
				}
			})
		},
	},
	{
		name: "clock of the control plane: an hour ahead, then an hour behind",
		change: func(w *world) {
			clock := takeClock(w.t, w.server)
			w.turnoverAt(func(ahead time.Duration) {
				clock.jump(ahead)
				wantClock(w.t, w.admin, "/livez", ahead)
			})
		},
	},
}

// turnoverAt lets clocks jump twice, with a turnover some time after each, so that
// timers set before and after have run by then.
func (w *world) turnoverAt(jump func(ahead time.Duration)) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		jump(ahead)
		w.wait(w.probe + w.ack)
		w.fleet.turnover()
	}
}
