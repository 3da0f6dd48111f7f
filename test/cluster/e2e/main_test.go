package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/test/cluster/build"
	"github.com/freshmesh/freshmesh/test/cluster/kubelet"
	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

const envoyDir = "FRESHMESH_CLUSTER_ENVOY"

// the is the cluster of all tests here.
var the *rig.Rig

func TestMain(m *testing.M) { os.Exit(mainCode(m)) }

func mainCode(m *testing.M) int {
	flag.Parse()
	return rig.Main(tests{m}, installEnvoy)
}

// installEnvoy runs outside the sandbox, where there is a network. Without Python
// there is no Envoy, and what needs one is skipped.
func installEnvoy(root string) error {
	dir, err := interoptest.EnvoyTool.Install(root)
	if err != nil {
		if os.Getenv("CI") == "true" {
			return fmt.Errorf("install Envoy: %w", err)
		}
		fmt.Println("no Envoy in the cluster tests:", err)
		return nil
	}
	return os.Setenv(envoyDir, dir)
}

// tests runs the tests on a cluster with the mesh in it.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer the.Close()
	return t.m.Run()
}

func start() error {
	images := make(map[string]kubelet.Image)
	if dir := os.Getenv(envoyDir); dir != "" {
		images["envoy"] = kubelet.Image{Dir: filepath.Join(dir, "envoy", "_bin"), Mount: "/envoy", Entrypoint: []string{"/envoy/envoy"}}
	}
	var err error
	ctx := context.Background()
	if the, err = rig.Start(ctx, rig.Config{Nodes: 4, Images: images}); err != nil {
		return err
	}
	if err := install(ctx); err != nil {
		the.Close()
		return fmt.Errorf("start the mesh: %w", err)
	}
	return nil
}

// install applies configs/kubernetes as it is shipped, and nothing else.
func install(ctx context.Context) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	manifests, err := exec.CommandContext(ctx, filepath.Join(the.Programs.Kubernetes, "kubectl"), "kustomize", filepath.Join(root, "configs", "kubernetes")).Output()
	if err != nil {
		return fmt.Errorf("kubectl kustomize: %w", err)
	}
	return the.Apply(ctx, "", manifests, false)
}
