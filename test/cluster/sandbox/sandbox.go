// Package sandbox gives a process Linux namespaces of its own (network, mounts,
// processes), so that a cluster can have every port and address it likes, the
// host sees none of it, and all of it ends with the process. It also makes the
// network of the pods in there.
//
//	Main, outside ──▶ the same program, inside, as the namespace's first process
//
// It needs root, or user namespaces for everybody.
//
// Concurrency: Main runs before anything else does. A Network and its Pods
// belong to one goroutine each, and may be used beside each other.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnavailable is for a machine that gives this user no namespaces.
var ErrUnavailable = errors.New("a cluster needs root or user namespaces (and a kernel with veth and bridge)")

// inside is set in the environment of the process inside.
const inside = "FRESHMESH_SANDBOX"

// Inside tells whether this is the process inside.
func Inside() bool { return os.Getenv(inside) != "" }

// Main makes sure that the rest of the program runs in a sandbox. Inside one it
// returns done false. Outside it runs the program again inside one, with the
// same arguments, passes signals on, and returns done true with its exit code.
func Main() (code int, done bool, err error) {
	if Inside() {
		return 0, false, prepare()
	}
	// The kernel tells the child that its parent has died when the thread that made it ends.
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case err := <-ended:
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				return 0, false, err
			}
			return max(cmd.ProcessState.ExitCode(), -cmd.ProcessState.ExitCode()), true, nil
		}
	}
}

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// Available tells whether a sandbox can be had, by having a short-lived one.
func Available() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = attributes()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// prepare makes the inside ready: nothing that is mounted here shows outside, and loopback works.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w: private mounts: %w", ErrUnavailable, err)
	}
	// Refused in some containers; then /proc shows the processes of outside, which harms nobody.
	_ = unix.Mount("proc", "/proc", "proc", 0, "")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("%w: loopback: %w", ErrUnavailable, err)
	}
	return nil
}
