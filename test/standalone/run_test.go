package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/config"
	"go.uber.org/goleak"
)

// TestMain also plays the programs, by the name that it is called by: the
// runner is tested here, and not the mesh.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "xds-server":
		c, _, err := config.LoadServer(os.Args[2:], os.LookupEnv)
		play(err, "/readyz", c.AdminAddress, c.XDSAddress)
	case "dataplane":
		c, _, err := config.LoadDataplane(os.Args[1:], os.LookupEnv)
		play(err, "/ready", c.AdminAddress, c.OutboundAddress)
	case "echo":
		play(nil, "/", os.Args[4])
	case "standalone":
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play listens, answers 200 at path on the first address, and ends as told:
// at a signal, at GET /die, or not before SIGKILL where STUBBORN is set.
func play(err error, path string, addresses ...string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	listeners := make([]net.Listener, len(addresses))
	for i, address := range addresses {
		if listeners[i], err = net.Listen("tcp", address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	http.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(7) })
	fmt.Fprintln(os.Stderr, http.Serve(listeners[0], nil))
	os.Exit(1)
}

// rig is a runner at work on free ports.
type rig struct {
	options
	plan    *plan
	signals chan os.Signal
	lines   *bufio.Scanner
	result  chan error
}

// newRig writes a directory of configurations and links the programs, and starts nothing yet.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{signals: make(chan os.Signal, 2), result: make(chan error, 1)}
	r.configs, r.bin, r.logLevel = t.TempDir(), t.TempDir(), "info"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"xds-server", "dataplane", "echo", "standalone"} {
		if err := os.Symlink(self, filepath.Join(r.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(r.configs, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	free := func() string { return testaddr.Free(t, "127.0.0.1") }
	for name, text := range map[string]string{
		"backends.yaml":   "- {name: one, address: '" + free() + "'}\n",
		"xds-server.yaml": "xds: {address: '" + free() + "'}\nadmin: {address: '" + free() + "'}\n",
		"dataplane.yaml":  "node: {id: test}\nadmin: {address: '" + free() + "'}\noutbound: {address: '" + free() + "'}\nhealth: {address: ''}\n",
	} {
		if err := os.WriteFile(filepath.Join(r.configs, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.log = os.Stderr
	r.options.signals = r.signals
	if r.plan, err = newPlan(r.options); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) start() {
	out, in := io.Pipe()
	r.out, r.lines = in, bufio.NewScanner(out)
	go func() {
		runtime.LockOSThread()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.result <- run(ctx, r.options)
		in.Close()
	}()
}

// expect reads the runner's output up to the line that holds text, and gives it.
func (r *rig) expect(t *testing.T, text string) string {
	t.Helper()
	for r.lines.Scan() {
		if line := r.lines.Text(); strings.Contains(line, text) {
			return line
		}
	}
	t.Fatalf("the output ends without %q: %v", text, <-r.result)
	return ""
}

// end waits for the runner's result and checks that no process is left.
func (r *rig) end(t *testing.T) error {
	t.Helper()
	for r.lines.Scan() {
		continue
	}
	err := <-r.result
	if err := r.plan.addressesFree(); err != nil {
		t.Errorf("a process is left: %v", err)
	}
	return err
}

func TestASignalStopsEverything(t *testing.T) {
	for _, stubborn := range []string{"", "1"} {
		t.Setenv("STUBBORN", stubborn)
		r := newRig(t)
		r.start()
		r.expect(t, "The mesh is up")
		begin := time.Now()
		r.signals <- syscall.SIGINT
		if err := r.end(t); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("stubborn %q: stopping took %v", stubborn, took)
		}
	}
}

// TestTheGuideKillsWhatRuns: the command that it gives ends that backend, and nothing else.
func TestTheGuideKillsWhatRuns(t *testing.T) {
	r := newRig(t)
	r.start()
	kill := r.expect(t, "    kill ")
	r.expect(t, "Ctrl-C")
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", kill).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", kill, err, out)
	}
	r.expect(t, "one ended (")
	if err := r.plan.addressesFree(); err == nil || strings.Contains(err.Error(), " of one: ") {
		t.Errorf("taken addresses: %v", err)
	}
	r.signals <- syscall.SIGINT
	if err := r.end(t); err != nil {
		t.Error(err)
	}
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Setenv("STUBBORN", "1")
	r := newRig(t)
	r.start()
	r.expect(t, "The mesh is up")
	begin := time.Now()
	r.signals <- syscall.SIGINT
	r.signals <- syscall.SIGINT
	if err := r.end(t); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took >= politeTime {
		t.Errorf("stopping took %v", took)
	}
}

func TestTheEndOfAnEssentialProgramIsTheEnd(t *testing.T) {
	r := newRig(t)
	r.start()
	r.expect(t, "The mesh is up")
	die(t, r.plan.server.AdminAddress)
	if err := r.end(t); err == nil || err.Error() != "xds-server ended (exit status 7)" {
		t.Errorf("%v", err)
	}
}

func TestTheEndOfABackendIsNot(t *testing.T) {
	r := newRig(t)
	r.start()
	r.expect(t, "Ctrl-C")
	die(t, r.plan.backends[0].Address)
	r.expect(t, "one ended (exit status 7); to bring it back: "+filepath.Join(r.bin, "echo")+" --name one")
	r.signals <- syscall.SIGTERM
	if err := r.end(t); err != nil {
		t.Error(err)
	}
}

// TestNothingOutlivesTheRunner: not even when it is killed without a chance to stop anything.
func TestNothingOutlivesTheRunner(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	r := newRig(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.bin, "standalone"), "--configs", r.configs, "--bin", r.bin, "--build=false")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(out)
	for r.lines.Scan() && !strings.Contains(r.lines.Text(), "The mesh is up") {
		continue
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the runner ended by itself")
	}
	deadline := time.NewTimer(3 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for r.plan.addressesFree() != nil {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("a process is left: %v", r.plan.addressesFree())
		}
	}
}

// die makes the program at address end, once it listens.
func die(t *testing.T, address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		response, err := client.Get("http://" + address + "/die")
		if err == nil {
			response.Body.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return // it took the request, and its end is the answer
		}
		<-ticker.C
	}
}

func TestAddressesInUseAreNamed(t *testing.T) {
	r := newRig(t)
	listener, err := net.Listen("tcp", r.plan.server.XDSAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r.out = io.Discard
	err = run(t.Context(), r.options)
	want := r.plan.server.XDSAddress + " of xds-server: already in use"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTheDefaultIsWhole: configs/standalone itself can be planned, and flags move its addresses.
func TestTheDefaultIsWhole(t *testing.T) {
	o := options{configs: "../../configs/standalone", bin: "bin", logLevel: "warn", xdsAddress: "127.0.0.1:1", adminAddress: "127.0.0.1:2", proxyAdminAddress: "127.0.0.1:3", outboundAddress: "127.0.0.1:4"}
	p, err := newPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	if p.server.XDSAddress != "127.0.0.1:1" || p.dataplane.XDSAddresses[0] != "127.0.0.1:1" || p.server.AdminAddress != "127.0.0.1:2" ||
		p.dataplane.AdminAddress != "127.0.0.1:3" || p.dataplane.OutboundAddress != "127.0.0.1:4" {
		t.Errorf("%+v\n%+v", p.server, p.dataplane)
	}
	guide := p.guide(o, func(name string) int { return map[string]int{p.backends[0].Name: 4711}[name] })
	for _, text := range []string{"curl -H 'Host: echo.default.svc.cluster.local:8080' http://127.0.0.1:4/", "bin/xds-server audit --server http://127.0.0.1:2", "http://127.0.0.1:3/clusters", "    kill 4711     # echo-1\n"} {
		if !strings.Contains(guide, text) {
			t.Errorf("the guide lacks %q:\n%s", text, guide)
		}
	}
}
