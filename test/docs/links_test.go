package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}

// anchors gives those of a page.
func anchors(text string) map[string]bool {
	out := make(map[string]bool)
	prose, _ := split(text)
	for _, line := range prose {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			out[slug(heading)] = true
		}
	}
	return out
}

// TestLinks: what a page links to in the repository is there, down to the heading.
func TestLinks(t *testing.T) {
	n := 0
	for _, page := range pages(t) {
		prose, _ := split(read(t, page))
		for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(strings.Join(prose, ""), "code"), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s: %s has no heading of that name", page, m[1], target)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d links found", n)
	}
}

func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"What counts": "what-counts", "The upgrade to h2c": "the-upgrade-to-h2c", "Drained: when may a pod go?": "drained-when-may-a-pod-go",
		"Does Envoy really have it?": "does-envoy-really-have-it", "`--drain-settle`, [0010](a.md)": "--drain-settle-0010",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: %q, want %q", heading, got, want)
		}
	}
}

// TestEveryPageIsLinked: a page that no other one leads to is not found.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{"README.md": true}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			path, _, _ := strings.Cut(m[1], "#")
			if target := filepath.Join(filepath.Dir(page), path); target != page {
				linked[target] = true
			}
		}
	}
	for _, page := range pages(t) {
		if !linked[page] {
			t.Errorf("no page links to %s", page)
		}
	}
}
