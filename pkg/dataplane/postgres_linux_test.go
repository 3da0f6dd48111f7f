package dataplane_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// postgresPrograms finds Debian's PostgreSQL, or installs it as root.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	find := func() string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		slices.Sort(found)
		if len(found) == 0 {
			return ""
		}
		return filepath.Dir(found[len(found)-1])
	}
	if dir := find(); dir != "" {
		return dir
	}
	out, err := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "--no-install-recommends", "postgresql").CombinedOutput()
	dir := find()
	switch {
	case dir != "":
	case os.Getenv("CI") == "true":
		t.Fatalf("install postgresql: %v\n%s", err, out)
	default:
		t.Skipf("no PostgreSQL is installed, and installing it failed: %v", err)
	}
	return dir
}

// startPostgres runs a server on a free port of its own and gives its address.
func startPostgres(t *testing.T, programs string) string {
	t.Helper()
	address := testaddr.Free(t, "127.0.0.1")
	dir, err := os.MkdirTemp("", "freshmesh-postgres") //nolint:usetesting // another user must get into it, and socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	initdb := exec.CommandContext(t.Context(), filepath.Join(programs, "initdb"), "-D", dir+"/data", "-U", "mesh", "-A", "trust", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	_, port, _ := net.SplitHostPort(address)
	server := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "postgres"),
		"-D", dir+"/data", "-h", "127.0.0.1", "-p", port, "-k", dir, "-F")
	server.SysProcAttr, server.Dir = as, dir
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	// It takes connections before it is ready for them, and refuses them by a message.
	testwait.Until(t, "postgres is ready", func() bool {
		return exec.CommandContext(t.Context(), filepath.Join(programs, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port).Run() == nil
	})
	return address
}

// TestPostgres: a real server and its client, through a captured connection, on
// its own port (opaque by default) and on one that nobody has heard of.
func TestPostgres(t *testing.T) {
	if os.Getenv(insideNamespace) == "" {
		postgresPrograms(t)
	}
	if !inNamespace(t, redirects) {
		return
	}
	programs := postgresPrograms(t)
	control, addr := newControl(t)
	const sql = "sql.default.svc.cluster.local:5432"
	control.set(sql, startPostgres(t, programs))
	control.alias("10.96.0.1:5432", sql)
	control.alias("10.96.0.1:15432", sql)
	start(t, addr, func(c *dataplane.Config) { c.OutboundAddress = ":15001" })
	for _, at := range []string{"10.96.0.1:5432", "10.96.0.1:15432"} {
		a := netip.MustParseAddrPort(at)
		psql := exec.CommandContext(t.Context(), filepath.Join(programs, "psql"), "-h", a.Addr().String(), "-p", strconv.Itoa(int(a.Port())),
			"-U", "mesh", "-d", "postgres", "-At", "-c", "select sum(n) from generate_series(1, 100000) n")
		out, err := psql.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "5000050000" {
			t.Errorf("psql %s: %v\n%s", at, err, out)
		}
	}
}
