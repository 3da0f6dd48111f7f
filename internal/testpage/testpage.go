// Package testpage reads the pages of docs in tests that hold them against the code. It owns nothing, and imports nothing
// of ours, so that the tests inside any package can use it.
package testpage

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deepest is how far below the module's root a package may be.
const deepest = 8

// Read gives a page of docs, as "dataplane.md"; it fails the test where there is none.
func Read(t testing.TB, page string) string {
	t.Helper()
	root := "."
	for range deepest {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Table gives what stands on a page between "<!-- NAME: tested against the code -->" and "<!-- end of NAME -->", and what
// comes after it; it fails the test where one of them is missing.
func Table(t testing.TB, page, name string) (table, after string) {
	t.Helper()
	_, rest, begun := strings.Cut(Read(t, page), "<!-- "+name+": tested against the code -->\n")
	table, after, ended := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !begun || !ended {
		t.Fatalf("docs/%s has no table of %s", page, name)
	}
	return table, after
}

var (
	firstCell = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// Names gives what stands in backticks in the first cells of a table's rows that begin so, sorted. The header is none of them.
func Names(table string) (names []string) {
	_, table, _ = strings.Cut(table, "\n|---")
	for _, row := range firstCell.FindAllStringSubmatch(table, -1) {
		names = append(names, Quoted(row[1])...)
	}
	slices.Sort(names)
	return names
}

// Quoted gives what stands in backticks, in order.
func Quoted(text string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
