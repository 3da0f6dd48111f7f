package program

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Command is one command of a program that has several.
type Command struct {
	Name string
	// Short says in one line what it does.
	Short string
	// Run gets the arguments after the command's name and gives the exit code.
	Run func(ctx context.Context, p Process, args []string) int
}

// Dispatch runs the command that the first argument names; a flag there means
// commands[0] with all arguments. planned are names that are reserved: they
// are not in the help, and say that they are not built yet.
func (p Process) Dispatch(ctx context.Context, args []string, commands []Command, planned ...string) int {
	if len(args) == 0 {
		fmt.Fprint(p.Stderr, p.help(commands))
		return Usage
	}
	first := args[0]
	switch {
	case first == "help" || first == "-h" || first == "--help":
		fmt.Fprint(p.Stdout, p.help(commands))
		return OK
	case first == "version":
		p.PrintVersion()
		return OK
	case strings.HasPrefix(first, "-"):
		return commands[0].Run(ctx, p, args)
	case slices.Contains(planned, first):
		p.Complain(fmt.Errorf("command %q is not built yet", first))
		return Usage
	}
	for _, c := range commands {
		if c.Name == first {
			return c.Run(ctx, p, args[1:])
		}
	}
	p.Complain(fmt.Errorf("unknown command %q; %s --help lists the commands", first, p.Name))
	return Usage
}

func (p Process) help(commands []Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s COMMAND [flags]\n\nCommands:\n", p.Name)
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s %s\n", c.Name, c.Short)
	}
	fmt.Fprintf(&b, "  %-10s %s\n\n", "version", "print the version")
	fmt.Fprintf(&b, "%s COMMAND --help lists a command's flags. Without COMMAND, flags are those of %s.\n", p.Name, commands[0].Name)
	return b.String()
}
