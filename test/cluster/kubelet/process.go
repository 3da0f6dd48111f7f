package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Image is what stands for a container image: a directory of the host.
type Image struct {
	// Dir is laid into the container at Mount.
	Dir, Mount string
	// Entrypoint is the command, unless the container names one.
	Entrypoint []string
}

// mount is part of a container's root directory, as command enter takes it.
type mount struct {
	From, To string
	ReadOnly bool
}

// entry is the argument of command enter.
type entry struct {
	Root        string
	Mounts      []mount
	Dir         string
	User, Group int
	Args, Env   []string
}

// process is a running program in a container.
type process struct {
	cmd   *exec.Cmd
	began time.Time
	// ended is closed once how is set.
	ended chan struct{}
	how   *v1.ContainerStateTerminated
	// tell hears what happens to the process, before anybody who waits for that does.
	tell func(what, detail string)
}

// run starts a program in a pod's network; out gets what it writes, and tell hears of
// "started", "SIGKILL" and "ended", the latter with the exit code.
func run(enter string, e entry, namespace *os.File, out io.Writer, tell func(what, detail string)) (*process, error) {
	spec, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(enter, string(spec))
	cmd.ExtraFiles = []*os.File{namespace}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.WaitDelay = time.Second // children that keep the output open
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", e.Args[0], err)
	}
	p := &process{cmd: cmd, began: time.Now(), ended: make(chan struct{}), tell: tell}
	tell("started", "")
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	// What it started ends with it.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	s := &v1.ContainerStateTerminated{
		StartedAt: metav1.NewTime(p.began), FinishedAt: metav1.Now(), Reason: "Completed",
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		s.Signal = int32(status.Signal())
		s.ExitCode = 128 + s.Signal
	} else {
		s.ExitCode = int32(p.cmd.ProcessState.ExitCode()) //nolint:gosec // 8 bits
	}
	if s.ExitCode != 0 {
		s.Reason = "Error"
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		s.Reason, s.ExitCode, s.Message = "ContainerStatusUnknown", 137, err.Error()
	}
	p.how = s
	p.tell("ended", itoa(s.ExitCode))
	close(p.ended)
}

func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may just have ended
}

// stop sends SIGTERM, SIGKILL after the grace period, and waits for the end.
func (p *process) stop(grace time.Duration) {
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.tell("SIGKILL", "")
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

// logFile opens the file that a container's output goes to, for appending.
func logFile(dir, container string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, container+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// user gives the user and the group that a container is to run as. An image's own is 65532, as in
// distroless images, where the pod wants any but root.
func user(pod *v1.Pod, c *v1.Container) (uid, gid int) {
	if p := pod.Spec.SecurityContext; p != nil {
		uid, gid = identity(uid, gid, p.RunAsUser, p.RunAsGroup, p.RunAsNonRoot)
	}
	if s := c.SecurityContext; s != nil {
		uid, gid = identity(uid, gid, s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot)
	}
	if uid != 0 && gid == 0 {
		gid = uid
	}
	return uid, gid
}

func identity(uid, gid int, runAsUser, runAsGroup *int64, nonRoot *bool) (user, group int) {
	const imageUser = 65532
	if nonRoot != nil && *nonRoot && uid == 0 {
		uid = imageUser
	}
	if runAsUser != nil {
		uid = int(*runAsUser)
	}
	if runAsGroup != nil {
		gid = int(*runAsGroup)
	}
	return uid, gid
}

// othersMapped tells whether this process may become other users: not in the user
// namespace of somebody who is not root.
var othersMapped = func() bool {
	content, err := os.ReadFile("/proc/self/uid_map")
	var first, outside, size int
	n, scan := fmt.Sscan(string(content), &first, &outside, &size)
	return err == nil && scan == nil && n == 3 && size > 65532
}()

func hostname(pod *v1.Pod) string {
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	return pod.Name
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
