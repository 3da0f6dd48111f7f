package interoptest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// StopThreads stops those threads of the process whose name begins with prefix, and no
// others, as a busy machine does that gives them no time. release lets them go on; it
// has to be called before the test ends, and only once.
func (p *Process) StopThreads(t testing.TB, prefix string) (release func()) {
	t.Helper()
	threads, err := threadsOf(p.Pid(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	stopped, goOn, released := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		// Only the thread that stopped them may let them go on (ptrace(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		held, err := stopThreads(threads)
		if err != nil {
			_ = letGo(held) // the first error says more
			stopped <- err
			return
		}
		stopped <- nil
		<-goOn
		released <- letGo(held)
	}()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		close(goOn)
		if err := <-released; err != nil {
			t.Error(err)
		}
	}
}

// threadsOf gives the threads of a process by the beginning of their names; none is an error.
func threadsOf(pid int, prefix string) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, file := range files {
		name, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(name), prefix) {
			continue // a thread that has ended has no name
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("process %d has no thread %s…", pid, prefix)
	}
	return out, nil
}

func stopThreads(threads []int) (stopped []int, err error) {
	for _, id := range threads {
		if err := syscall.PtraceAttach(id); err != nil {
			return stopped, fmt.Errorf("stop thread %d: %w", id, err)
		}
		stopped = append(stopped, id)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(id, &status, syscall.WALL, nil); err != nil {
			return stopped, fmt.Errorf("stop thread %d: %w", id, err)
		}
	}
	return stopped, nil
}

func letGo(threads []int) error {
	for _, id := range threads {
		if err := syscall.PtraceDetach(id); err != nil {
			return fmt.Errorf("let thread %d go on: %w", id, err)
		}
	}
	return nil
}
