package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/program"
	"github.com/freshmesh/freshmesh/pkg/dataplane/redirect"
)

var update = flag.Bool("update", false, "write docs/commands.md")

const (
	commandsPage  = "../../docs/commands.md"
	beginCommands = "<!-- commands: written from the code -->\n"
)

// TestCommandsPage: docs/commands.md has the help of each command that no other page has.
func TestCommandsPage(t *testing.T) {
	text, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	intro, got, ok := strings.Cut(string(text), beginCommands)
	if !ok {
		t.Fatalf("%s: no line %q", commandsPage, beginCommands)
	}
	var want strings.Builder
	section := func(name string, run func(p program.Process, args []string) int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p := program.Process{Name: "xds-server", LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stderr}
		if code := run(p, []string{"--help"}); code != 0 || stderr.Len() > 0 {
			t.Fatalf("%s --help: exit code %d\n%s", name, code, &stderr)
		}
		want.WriteString("\n## " + name + "\n\n```\n" + strings.TrimSpace(stdout.String()) + "\n```\n")
	}
	for _, command := range []string{"audit", "explain", "drain", "bootstrap", "inject", "check"} {
		section("xds-server "+command, func(p program.Process, args []string) int {
			return run(t.Context(), p, append([]string{command}, args...))
		})
	}
	section("dataplane redirect", func(p program.Process, args []string) int {
		return redirect.Main(args, p.Stdout, p.Stderr)
	})
	if *update {
		if err := os.WriteFile(commandsPage, []byte(intro+beginCommands+want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s (-code +page); -update writes it:\n%s", commandsPage, diff)
	}
}
