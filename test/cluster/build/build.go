// Package build makes the programs that a cluster is made of: Kubernetes and
// etcd at the versions that this module's go.mod pins, below .cache/cluster, once
// for each content of go.mod; and our own, anew whenever their code has changed.
//
// It needs a network or a filled module cache the first time, so it runs before
// a sandbox is entered. Functions run on the caller's goroutine; two processes
// that build at once wait for each other.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// KubernetesVersion is what go.mod pins, as the API server reports it.
const KubernetesVersion = "v1.37.2"

// The first build compiles all of Kubernetes.
const ldflags = "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Programs is where the programs are.
type Programs struct {
	// Kubernetes is a directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
	Kubernetes string
	// Own is a directory with xds-server, dataplane, enter and app, built without cgo as the images are.
	Own string
}

// All builds what is missing. root is the repository's directory.
func All(ctx context.Context, root string) (Programs, error) {
	cache := filepath.Join(root, ".cache", "cluster")
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // as any build cache
		return Programs{}, err
	}
	unlock, err := lock(filepath.Join(cache, "build.lock"))
	if err != nil {
		return Programs{}, err
	}
	defer unlock()
	kubernetes, err := buildKubernetes(ctx, root, cache)
	if err != nil {
		return Programs{}, err
	}
	own := filepath.Join(cache, "own")
	if err := run(ctx, root, []string{"CGO_ENABLED=0"}, "build", "-o", own+"/", "./cmd/..."); err != nil {
		return Programs{}, err
	}
	if err := run(ctx, module(root), []string{"CGO_ENABLED=0"}, "build", "-o", own+"/", "./enter", "./app"); err != nil {
		return Programs{}, err
	}
	return Programs{Kubernetes: kubernetes, Own: own}, nil
}

func module(root string) string { return filepath.Join(root, "test", "cluster") }

// buildKubernetes: what is built is never changed; it appears by one rename.
func buildKubernetes(ctx context.Context, root, cache string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "etcd/main.go", "build/build.go"} {
		content, err := os.ReadFile(filepath.Join(module(root), name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(content), content)
	}
	dir := filepath.Join(cache, "kubernetes-"+hex.EncodeToString(h.Sum(nil))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	temporary, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temporary) }() // renamed by then, or of no use
	fmt.Fprintln(os.Stderr, "building Kubernetes "+KubernetesVersion+" and etcd into "+dir+"; about 6 minutes on 2 cores, the first time only")
	k8s := "k8s.io/kubernetes/cmd/"
	if err := run(ctx, module(root), nil, "build", "-ldflags", ldflags, "-o", temporary+"/",
		"./etcd", k8s+"kube-apiserver", k8s+"kube-controller-manager", k8s+"kube-scheduler", k8s+"kubectl"); err != nil {
		return "", err
	}
	return dir, os.Rename(temporary, dir)
}

// run runs the go command, with what the environment says of flags.
func run(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	var output bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, output.Bytes())
	}
	return nil
}

// Lock waits until no other process holds a cluster of this checkout: several
// at a time on a small machine would be slower than one after the other. It
// lasts as long as this process.
func Lock(root string) error {
	cache := filepath.Join(root, ".cache", "cluster")
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // as any build cache
		return err
	}
	_, err := lock(filepath.Join(cache, "run.lock"))
	return err
}

// lock waits for the exclusive lock of a file.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644) //nolint:gosec // as any build cache
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks
}

// Root finds the repository's directory from the working directory, below test/cluster.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "cluster", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not below the repository")
		}
		dir = filepath.Dir(dir)
	}
}
