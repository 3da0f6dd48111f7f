package main

import (
	"os/exec"
	"testing"
)

// TestPatchesFit: every defect still fits the code; whether it is caught is for `make mutants` to say.
func TestPatchesFit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("git is needed to apply patches: ", err)
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if _, err := m.apply(t.Context(), root, t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}
