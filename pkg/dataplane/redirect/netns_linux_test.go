package redirect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
)

// role says what a copy of this test program is to be: "" for the tests, "pod"
// for the test inside the pod's namespace, "outside" for its surroundings, "dial" for one client.
const role = "FRESHMESH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "outside":
		outside()
	case "dial":
		fmt.Println(said(os.Args[1]))
	case "command":
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	default:
		goleak.VerifyTestMain(m)
	}
}

// The addresses of the pod and of what lies outside.
const (
	pod4, pod6         = "10.1.0.1", "fd00:1::1"
	outside4, outside6 = "10.1.0.2", "fd00:1::2"
)

// patience bounds one connection. One that nobody takes is refused at once.
const patience = 10 * time.Second

// said gives what a server says first, or why there is none.
func said(address string) string {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "refused"
		}
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sayer is a server that says something to each client, and closes.
func sayer(address string, say func(*net.TCPConn) string) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, say(c.(*net.TCPConn)))
			_ = c.Close()
		}
	}()
	return func() {
		_ = l.Close()
		<-done
	}, nil
}

// outside plays what the pod talks to, and who talks to it: each line of its input is an address to dial.
func outside() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan() // once the namespace has its addresses
	for _, port := range []string{"80", "5432"} {
		if _, err := sayer(":"+port, func(*net.TCPConn) string { return "outside" }); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("ready")
	for in.Scan() {
		fmt.Println(said(in.Text()))
	}
}

// rig is a pod with a proxy and an application in it, and its surroundings.
type rig struct {
	*testing.T
	in  io.Writer
	out *bufio.Scanner
}

// newRig is run inside the pod's namespace.
func newRig(t *testing.T) *rig {
	t.Helper()
	other := exec.CommandContext(t.Context(), "/proc/self/exe")
	other.Env = append(os.Environ(), role+"=outside")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = other.Wait()
	})
	pid := strconv.Itoa(other.Process.Pid)
	for _, line := range []string{
		"ip link set lo up",
		"ip link add pod0 type veth peer name out0",
		"ip link set out0 netns " + pid,
		"ip address add " + pod4 + "/24 dev pod0",
		"ip address add " + pod6 + "/64 dev pod0 nodad",
		"ip link set pod0 up",
		"nsenter -t " + pid + " -n ip link set lo up", // without it, Go takes the system for one without IPv6
		"nsenter -t " + pid + " -n ip address add " + outside4 + "/24 dev out0",
		"nsenter -t " + pid + " -n ip address add " + outside6 + "/64 dev out0 nodad",
		"nsenter -t " + pid + " -n ip link set out0 up",
	} {
		fields := strings.Fields(line)
		if text, err := exec.CommandContext(t.Context(), fields[0], fields[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
	}
	r := &rig{T: t, in: in, out: bufio.NewScanner(out)}
	if got := r.fromOutside(""); got != "ready" {
		t.Fatalf("outside: %q", got)
	}
	for port, name := range map[uint16]string{15001: "outbound", 15006: "inbound", 15021: "health", 8080: "app", 9090: "app"} {
		stop, err := sayer(fmt.Sprintf(":%d", port), func(c *net.TCPConn) string {
			if to, captured := capture.Destination(c, port); captured {
				return name + " " + to.String()
			}
			return name
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	return r
}

// fromOutside dials from outside.
func (r *rig) fromOutside(address string) string {
	r.Helper()
	if _, err := fmt.Fprintln(r.in, address); err != nil {
		r.Fatal(err)
	}
	if !r.out.Scan() {
		r.Fatalf("outside: %v", r.out.Err())
	}
	return r.out.Text()
}

// fromPod dials from the pod as a user.
func (r *rig) fromPod(uid uint32, address string) string {
	r.Helper()
	c := exec.CommandContext(r.Context(), "/proc/self/exe", address)
	c.Env = append(os.Environ(), role+"=dial")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := c.CombinedOutput()
	if err != nil {
		r.Fatalf("dial as %d: %v\n%s", uid, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// ruleset is all that the kernel has.
func (r *rig) ruleset() string {
	r.Helper()
	out, err := exec.CommandContext(r.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		r.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}

// TestConnections: in a real kernel, real connections go where the rules say.
func TestConnections(t *testing.T) {
	if !inPod(t) {
		return
	}
	r := newRig(t)
	const app, proxy, skipped = 1000, 15000, 1001
	type step struct {
		uid     int // -1 is from outside
		address string
		want    string
	}
	judge := func(when string, steps []step) {
		t.Helper()
		for _, s := range steps {
			got := ""
			if s.uid < 0 {
				got = r.fromOutside(s.address)
			} else {
				got = r.fromPod(uint32(s.uid), s.address)
			}
			if got != s.want {
				t.Errorf("%s: user %d to %s: %q, want %q", when, s.uid, s.address, got, s.want)
			}
		}
	}
	direct := []step{
		{app, outside4 + ":80", "outside"},
		{app, "[" + outside6 + "]:80", "outside"},
		{-1, pod4 + ":8080", "app"},
		{-1, "[" + pod6 + "]:8080", "app"},
		{-1, pod4 + ":15021", "health"},
	}
	judge("without rules", direct)

	if code := Main([]string{"--skip-outbound-ports=5432", "--skip-inbound-ports=9090", "--skip-uids=1001"}, os.Stdout, os.Stderr); code != 0 {
		t.Fatalf("redirect: %d", code)
	}
	judge("redirected", []step{
		{app, outside4 + ":80", "outbound " + outside4 + ":80"},
		{app, "[" + outside6 + "]:80", "outbound [" + outside6 + "]:80"},
		{0, outside4 + ":80", "outbound " + outside4 + ":80"},
		{app, outside4 + ":81", "outbound " + outside4 + ":81"}, // where nobody listens
		{app, outside4 + ":5432", "outside"},
		{app, "[" + outside6 + "]:5432", "outside"},
		{proxy, outside4 + ":80", "outside"},
		{proxy, "[" + outside6 + "]:80", "outside"},
		{skipped, outside4 + ":80", "outside"},
		{app, "127.0.0.1:8080", "app"},
		{app, "[::1]:8080", "app"},
		{app, pod4 + ":8080", "app"},
		{app, "127.0.0.1:15001", "outbound"},
		{proxy, pod4 + ":8080", "app"},
		{-1, pod4 + ":8080", "inbound " + pod4 + ":8080"},
		{-1, "[" + pod6 + "]:8080", "inbound [" + pod6 + "]:8080"},
		{-1, pod4 + ":9090", "app"},
		{-1, pod4 + ":15021", "health"},
		{-1, "[" + pod6 + "]:15021", "health"},
		// The outbound listener is not for others.
		{-1, pod4 + ":15001", "inbound " + pod4 + ":15001"},
		{-1, "[" + pod6 + "]:15001", "inbound [" + pod6 + "]:15001"},
	})

	// A container that is restarted does it again: the same rules, not twice.
	before := r.ruleset()
	if err := Apply(Rules{OutboundPort: 15001, InboundPort: 15006, HealthPort: 15021, ProxyUID: proxy, SkipUIDs: []uint32{1001}, SkipOutboundPorts: []uint16{5432}, SkipInboundPorts: []uint16{9090}}); err != nil {
		t.Fatal(err)
	}
	if after := r.ruleset(); after != before {
		t.Errorf("rules the second time:\n%s\nthe first time:\n%s", after, before)
	}
	if err := Apply(DefaultRules()); err != nil {
		t.Fatal(err)
	}
	judge("with other rules", []step{
		{app, outside4 + ":5432", "outbound " + outside4 + ":5432"},
		{skipped, outside4 + ":80", "outbound " + outside4 + ":80"},
		{-1, pod4 + ":9090", "inbound " + pod4 + ":9090"},
	})

	for range 2 {
		if err := Remove(); err != nil {
			t.Fatal(err)
		}
	}
	judge("after the removal", direct)
	if left := r.ruleset(); left != "" {
		t.Errorf("left over:\n%s", left)
	}

	// Without the capability nothing happens, and it says why.
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Env = append(os.Environ(), role+"=command")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: app, Gid: app}}
	out, err := c.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "it needs the capability NET_ADMIN") {
		t.Errorf("without NET_ADMIN: %v\n%s", err, out)
	}
}

// inPod runs the test once more in a network namespace of its own, and tells
// whether this is that run. It needs root, for the users; without, it fails
// under CI and is skipped elsewhere.
func inPod(t *testing.T) bool {
	t.Helper()
	if os.Getenv(role) == "pod" {
		return true
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root, for a namespace with several users")
		}
		t.Skip("this needs root, for a namespace with several users")
	}
	for _, tool := range []string{"nft", "ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			out, err := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "--no-install-recommends", "nftables", "iproute2", "util-linux").CombinedOutput()
			if err != nil {
				t.Logf("install %s: %v\n%s", tool, err, out)
			}
			break
		}
	}
	self := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=120s")
	self.Env = append(os.Environ(), role+"=pod")
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := self.CombinedOutput()
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	return false
}
