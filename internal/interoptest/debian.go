package interoptest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Program is one that comes with the operating system.
type Program struct {
	// Name is what it is called by, Package the Debian package that has it.
	Name, Package string
}

// What the tests run.
var (
	Curl   = Program{"curl", "curl"}
	H2Load = Program{"h2load", "nghttp2-client"}
	Node   = Program{"node", "nodejs"}
	Python = Program{"python3", "python3"}
)

// Need gives the program's path, and installs its package first where it is
// missing and we may. Where it cannot, the test is skipped, and with CI=true it fails.
func (p Program) Need(t testing.TB) string {
	t.Helper()
	path, err := p.Install(t.Context())
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}

// Install gives the program's path, and installs its package first where it is missing and we are root.
func (p Program) Install(ctx context.Context) (string, error) {
	path, err := exec.LookPath(p.Name)
	if err == nil {
		return path, nil
	}
	if err := InstallPackage(ctx, p.Package); err != nil {
		return "", fmt.Errorf("%s is missing: %w", p.Name, err)
	}
	return exec.LookPath(p.Name)
}

// InstallPackage installs a Debian package where we are root.
func InstallPackage(ctx context.Context, name string) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("install the package %s", name)
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	// The list of packages may be old, or not there at all.
	if err := apt(ctx, "install", "--no-install-recommends", name); err == nil {
		return nil
	}
	if err := apt(ctx, "update"); err != nil {
		return err
	}
	return apt(ctx, "install", "--no-install-recommends", name)
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-y", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive"), 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, Tail(string(out), 10))
	}
	return nil
}
