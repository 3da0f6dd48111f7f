// Command enter starts a container's program: it joins the network namespace of
// the pod that stands open as file 3, makes a root directory out of what its
// one argument (JSON, type container) names, and becomes the program. It is
// started with a mount namespace of its own.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// container is what package kubelet writes.
type container struct {
	// Root is an empty directory to make the root in.
	Root string
	// Mounts are laid into the root in this order.
	Mounts []struct {
		From, To string
		ReadOnly bool
	}
	Dir       string
	User      int
	Group     int
	Args, Env []string
}

func main() {
	runtime.LockOSThread()
	fmt.Fprintln(os.Stderr, "enter:", become())
	os.Exit(128)
}

// become returns only with an error.
func become() error {
	var c container
	if err := json.Unmarshal([]byte(os.Args[1]), &c); err != nil {
		return err
	}
	if err := unix.Setns(3, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if err := unix.Close(3); err != nil {
		return err
	}
	if err := makeRoot(c); err != nil {
		return err
	}
	if err := unix.Chroot(c.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	if err := take(c.User, c.Group); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", c.Args[0], syscall.Exec(c.Args[0], c.Args, c.Env))
}

// take takes another user's rights; 0 stays what it is.
func take(user, group int) error {
	if user == 0 && group == 0 {
		return nil
	}
	if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(group, group, group), unix.Setresuid(user, user, user)); err != nil {
		return fmt.Errorf("user %d, group %d: %w", user, group, err)
	}
	return nil
}

// makeRoot: programs of the host can be run, and nothing of it can be changed.
func makeRoot(c container) error {
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", 0, "mode=0755,size=64m"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for _, dir := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "dev", "proc"} {
		if err := system(c.Root, dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "run", "var", "etc", "sys"} {
		if err := os.MkdirAll(filepath.Join(c.Root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(c.Root, "tmp"), os.ModeSticky|0o777); err != nil {
		return err
	}
	// Relative, for mount paths pass it before the root is changed.
	if err := os.Symlink("../run", filepath.Join(c.Root, "var", "run")); err != nil {
		return err
	}
	for _, m := range c.Mounts {
		if err := bind(m.From, filepath.Join(c.Root, m.To), m.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

// system lays a directory of the host into the root, or the same link.
func system(root, dir string) error {
	from, to := "/"+dir, filepath.Join(root, dir)
	if target, err := os.Readlink(from); err == nil {
		return os.Symlink(target, to)
	}
	if _, err := os.Stat(from); err != nil {
		return nil //nolint:nilerr // not every host has all of them
	}
	return bind(from, to, dir != "dev" && dir != "proc")
}

// bind lays a file or a directory somewhere, with all that is mounted below it.
func bind(from, to string, readOnly bool) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o644) //nolint:gosec // replaced by what is laid over it
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	if readOnly {
		// Refused for mounts that a user namespace inherited; those are read-only for it anyway or locked.
		_ = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}
