// Package install follows docs/install.md, command by command, on a real control plane, and
// tries what the page promises: by kustomize and by Helm, with redirection.
package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

// helmDir is where the process outside tells the one inside that Helm is.
const helmDir = "FRESHMESH_CLUSTER_HELM"

func TestMain(m *testing.M) { os.Exit(rig.Main(m, buildHelm)) }

// buildHelm builds Helm, which is a tool of the module that renders the chart.
func buildHelm(root string) error {
	dir := filepath.Join(root, ".cache", "cluster", "helm")
	cmd := exec.Command("go", "build", "-o", dir+"/", "helm.sh/helm/v4/cmd/helm")
	cmd.Dir = filepath.Join(root, "test", "install")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build helm: %w\n%s", err, out)
	}
	return os.Setenv(helmDir, dir)
}
