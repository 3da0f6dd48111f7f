//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proxy is a contender's running process.
type proxy struct {
	address string
	// pid is that of the process that relays.
	pid     int
	version string
	// profile writes a profile of the next seconds of the process; nil where the proxy does not profile while it is asked.
	profile func(ctx context.Context, seconds int, file string) error
	stop    func()
}

// start starts a contender in front of endpoints.
type start func(ctx context.Context, s setup, endpoints []string) (*proxy, error)

// contenders are all, in the order in which they are shown.
var contenders = []struct {
	name  string
	start start
}{
	{"freshmesh", startFreshmesh},
	{"relay", ours("relay")},
	{"envoy", startEnvoy},
	{"haproxy", startHAProxy},
	{"nginx", startNginx},
	{"traefik", startTraefik},
	{"caddy", startCaddy},
	{"reverseproxy", ours("reverseproxy")},
	{"floor", ours("floor")},
}

func contenderNames() (all []string) {
	for _, c := range contenders {
		all = append(all, c.name)
	}
	return all
}

// errNotHere is a contender that has no answer to a workload.
var errNotHere = errors.New("it does not do this")

// ours starts this program again as one of the proxies of proxies.go.
func ours(name string) start {
	return func(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
		if s.speaks() == opaque && name != "floor" {
			return nil, errNotHere
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args := []string{self, "--role", "proxy", "--workload", s.Workload, "--contenders", name, "--endpoint", strings.Join(endpoints, ",")}
		if s.profile != "" {
			args = append(args, "--profile", s.profile+"."+name+"."+s.Workload)
		}
		cmd := pinned(ctx, s, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		p, err := launch(cmd)
		if err != nil {
			return nil, err
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			p.stop()
			return nil, fmt.Errorf("its address: %w", err)
		}
		p.address = strings.TrimSpace(line)
		return p, nil
	}
}

// pinned is a command on the proxy's CPU, which sees to it that it does not outlive us.
func pinned(ctx context.Context, s setup, args ...string) *exec.Cmd {
	return pinnedTo(ctx, s.ProxyCPU, args...)
}

func pinnedTo(ctx context.Context, cpu int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", strconv.Itoa(cpu)}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// launch starts it; taskset becomes the program, so that the process is the same.
func launch(cmd *exec.Cmd) (*proxy, error) {
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &proxy{pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}}, nil
}

// accepts waits until somebody accepts at the address.
func (p *proxy) accepts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not accept: %w", err)
		case <-tick.C:
		}
	}
}
