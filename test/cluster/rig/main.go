package rig

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/freshmesh/freshmesh/test/cluster/build"
	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// Where the process outside tells the one inside what it has built.
const (
	kubernetesDir = "FRESHMESH_CLUSTER_KUBERNETES"
	ownDir        = "FRESHMESH_CLUSTER_OWN"
)

// Enter builds what a cluster needs and makes sure that the program runs in a sandbox:
// done is false inside one, and true outside, when it has run inside and ended with code.
// prepare, if not nil, is called outside, where there is a network; it gets the root
// directory of the repository.
func Enter(prepare func(root string) error) (code int, done bool, err error) {
	if os.Getenv(ownDir) == "" {
		if err := outside(prepare); err != nil {
			return 0, false, err
		}
	}
	return sandbox.Main()
}

func outside(prepare func(string) error) error {
	if err := sandbox.Available(); err != nil {
		return err
	}
	root, err := build.Root()
	if err != nil {
		return err
	}
	programs, err := build.All(context.Background(), root)
	if err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(root); err != nil {
			return err
		}
	}
	if err := build.Lock(root); err != nil {
		return err
	}
	return errors.Join(os.Setenv(kubernetesDir, programs.Kubernetes), os.Setenv(ownDir, programs.Own))
}

// Main is for TestMain: it runs the tests, a *testing.M, in a sandbox, and gives the exit code. On a
// machine without one it says so and passes, but with CI=true it fails.
func Main(m interface{ Run() int }, prepare func(root string) error) int {
	code, done, err := Enter(prepare)
	switch {
	case errors.Is(err, sandbox.ErrUnavailable) && os.Getenv("CI") != "true":
		fmt.Println("cluster tests skipped:", err)
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	case done:
		return code
	default:
		return m.Run()
	}
}
