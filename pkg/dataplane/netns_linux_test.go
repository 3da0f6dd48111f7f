package dataplane_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// insideNamespace is set in the child.
const insideNamespace = "FRESHMESH_TEST_NETNS"

// inNamespace runs the test once more in a network namespace of its own, in
// which rules has been loaded into the kernel, and tells whether this is that
// run. Where no namespace can be had the test fails under CI, and is skipped elsewhere.
func inNamespace(t *testing.T, rules string) bool {
	t.Helper()
	if os.Getenv(insideNamespace) == t.Name() {
		for _, c := range [][]string{
			{"ip", "link", "set", "lo", "up"},
			{"ip", "address", "add", "10.0.0.1/32", "dev", "lo"},
			{"ip", "route", "add", "10.96.0.0/16", "dev", "lo"},
			{"ip", "-6", "route", "add", "fd00:96::/64", "dev", "lo"},
			{"ip", "rule", "add", "fwmark", "1", "lookup", "100"},
			{"ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "100"},
		} {
			command(t, "", c...)
		}
		command(t, rules, "nft", "-f", "-")
		return true
	}
	if _, err := exec.LookPath("nft"); err != nil && os.Geteuid() == 0 {
		if out, err := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "--no-install-recommends", "nftables", "iproute2").CombinedOutput(); err != nil {
			t.Logf("install nftables: %v\n%s", err, out)
		}
	}
	self := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=60s")
	self.Env = append(os.Environ(), insideNamespace+"="+t.Name())
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := self.CombinedOutput()
	_, lookErr := exec.LookPath("nft")
	switch {
	case strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Logf("in a namespace:\n%s", out)
	case os.Getenv("CI") != "true" && (lookErr != nil || len(out) == 0 && err != nil):
		t.Skipf("no network namespace with nftables is to be had: %v, %v", err, lookErr)
	default:
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	return false
}

func command(t *testing.T, in string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Stdin = strings.NewReader(in)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
