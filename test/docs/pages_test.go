package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// read gives a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files gives the paths of all files that the repository may hold, sorted.
func files(t *testing.T) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			out = append(out, path)
		case slices.Contains([]string{".git", ".cache", "bin"}, path):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pages gives the paths of what people read.
func pages(t *testing.T) []string {
	t.Helper()
	out := slices.DeleteFunc(files(t), func(path string) bool { return !strings.HasSuffix(path, ".md") || strings.Contains(path, "testdata/") })
	if len(out) < 20 {
		t.Fatalf("only %d pages", len(out))
	}
	return out
}

// current are the pages that speak of what is. The changelog speaks of what was, too.
func current(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(path string) bool { return path == "CHANGELOG.md" })
}

// split parts a page's text into prose, with its headings, and what stands in fenced blocks.
func split(text string) (prose, blocks []string) {
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
		case inside:
			blocks = append(blocks, line)
		default:
			prose = append(prose, line)
		}
	}
	return prose, blocks
}

// code gives what a page has as code: inline, and in blocks.
func code(text string) []string {
	prose, out := split(text)
	// A piece between two backticks may go over the end of a line.
	for i, piece := range strings.Split(strings.Join(prose, ""), "`") {
		if i%2 == 1 {
			out = append(out, piece)
		}
	}
	return out
}
