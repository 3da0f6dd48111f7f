package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one defect.
type mutant struct {
	name, what string
	// patch is its file; files are those that it changes, by slashed path from the root.
	patch    string
	files    []string
	caughtBy []test
}

// test is what must fail. flags are further ones for it, separated by spaces.
type test struct{ pkg, pattern, flags string }

// String gives "PACKAGE PATTERN".
func (t test) String() string { return t.pkg + " " + t.pattern }

// result is how a test ended.
type result struct {
	// failed are the names of the tests that failed, the deepest ones.
	failed []string
	output string
	// err says that it could not be run, or did not end by itself.
	err error
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// load reads all patches, sorted by name.
func load(root string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, "test/mutants/patches/*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no patches below %s: %w", root, errors.Join(err, os.ErrNotExist))
	}
	slices.Sort(paths)
	var all []mutant
	for _, path := range paths {
		m, err := parse(path)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func parse(path string) (mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), patch: path}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m.what == "" {
			m.what = line
		}
		if by, ok := strings.CutPrefix(line, "Caught-By: "); ok {
			pkg, rest, _ := strings.Cut(by, " ")
			pattern, flags, _ := strings.Cut(rest, " ")
			m.caughtBy = append(m.caughtBy, test{pkg, pattern, flags})
		}
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			m.files = append(m.files, file)
		}
	}
	if len(m.files) == 0 || len(m.caughtBy) == 0 {
		return mutant{}, fmt.Errorf("%s: no diff, or no line Caught-By", path)
	}
	return m, nil
}

// apply makes the patched files in dir, and gives an overlay for the go command.
func (m mutant) apply(ctx context.Context, root, dir string) (string, error) {
	replace := map[string]string{}
	for _, file := range m.files {
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", fmt.Errorf("%s no longer fits: %w", m.name, err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	cmd := exec.CommandContext(ctx, "git", "apply", m.patch)
	cmd.Dir = dir
	// Below a directory that is in a repository, git would ignore what is not.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s no longer fits: %w\n%s", m.name, err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// survives runs the tests that must find the mutant, and gives how many did not.
func (m mutant) survives(ctx context.Context, root string) (int, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.apply(ctx, root, dir)
	if err != nil {
		return 0, err
	}
	survived := 0
	for _, t := range m.caughtBy {
		r := t.run(ctx, root, overlay)
		switch {
		case r.err != nil:
			return 0, fmt.Errorf("%s, %s: %w", m.name, t, r.err)
		case len(r.failed) == 0:
			survived++
			fmt.Printf("%-26s %-72s SURVIVED: %s\n", m.name, t, m.what)
		default:
			fmt.Printf("%-26s %-72s caught by %s\n", m.name, t, strings.Join(r.failed[:min(3, len(r.failed))], ", "))
		}
	}
	return survived, nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs a test. A test that hangs has failed, too, if it says so itself.
func (t test) run(ctx context.Context, root, overlay string) result {
	args := []string{"test", "-count=1", "-failfast", "-timeout=4m", "-run", t.pattern}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(append(args, t.pkg), strings.Fields(t.flags)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := result{output: out.String()}
	for _, match := range failed.FindAllStringSubmatch(r.output, -1) {
		r.failed = append(r.failed, match[1])
	}
	r.failed = deepest(r.failed)
	switch {
	case ctx.Err() != nil:
		r.err = ctx.Err()
	case strings.Contains(r.output, "[build failed]") || strings.Contains(r.output, "[setup failed]"):
		r.err = fmt.Errorf("does not compile:\n%s", r.output)
	case err != nil && len(r.failed) == 0:
		r.err = fmt.Errorf("ended without the name of a failed test: %w\n%s", err, r.output)
	case err == nil && strings.Contains(r.output, "[no tests to run]"):
		r.err = errors.New("there is no such test")
	}
	return r
}

// deepest leaves out the tests that failed only because a part of them did.
func deepest(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}
