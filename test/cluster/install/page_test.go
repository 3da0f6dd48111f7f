package install

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// page is docs/install.md's commands: heading → its blocks, in their order.
type page map[string][]string

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := make(page)
	var heading string
	var block []string
	inside := false
	for line := range strings.Lines(string(text)) {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && inside:
			p[heading] = append(p[heading], strings.Join(block, ""))
			inside, block = false, nil
		case fence:
			inside = true
		case inside:
			block = append(block, line)
		case strings.HasPrefix(line, "#"):
			heading = strings.Trim(line, "# \n")
		}
	}
	return p
}

// takes wants the page to have these blocks and no others: a new one has to be placed in the test.
func (p page) takes(t *testing.T, blocks map[string]int) {
	t.Helper()
	for heading, all := range p {
		if len(all) != blocks[heading] {
			t.Errorf("%q has %d blocks of commands, this test follows %d", heading, len(all), blocks[heading])
		}
	}
	for heading, n := range blocks {
		if len(p[heading]) != n {
			t.Errorf("%q has %d blocks of commands, this test follows %d", heading, len(p[heading]), n)
		}
	}
}

// commands splits a block into commands: each with its here-document, and without what a
// comment says, unless helm takes the way that such a comment names: "# or helm …".
func commands(block string, helm bool) []string {
	var all []string
	var open string // the end of the here-document that the last command has, or "\\"
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if open != "" {
			all[len(all)-1] += "\n" + line
			if open == "\\" && !strings.HasSuffix(line, "\\") || line == open {
				open = ""
			}
			continue
		}
		command, comment, _ := strings.Cut(line, " # ")
		if way, ok := strings.CutPrefix(comment, "or helm"); ok && helm {
			command = "helm" + way
		}
		if command = strings.TrimSpace(command); command == "" {
			continue
		}
		if _, end, ok := strings.Cut(command, "<<"); ok {
			open = end
		} else if strings.HasSuffix(command, "\\") {
			open = "\\"
		}
		all = append(all, command)
	}
	return all
}

func TestCommands(t *testing.T) {
	got := commands("a b\ncat > f <<EOF\nx # or helm y\nEOF\nlong \\\n  way\nkubectl delete # or helm uninstall it\n# or helm\n", true)
	want := []string{"a b", "cat > f <<EOF\nx # or helm y\nEOF", "long \\\n  way", "helm uninstall it", "# or helm"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
