package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

const originDefault = "default"

// Action is what a command line asks for.
type Action int

// The actions.
const (
	// Run means that the program is to do its work.
	Run Action = iota
	// Print means that Result.Text is to be printed, and nothing else done (--help, --print-config).
	Print
	// Version means that the version is to be printed (--version).
	Version
	// Check means that the configuration was to be judged (--check-config): it is good unless there is an error.
	Check
)

// Result is what loading gives beside the settings.
type Result struct {
	Action Action
	// Text is what Print is to print, with its last newline.
	Text string
	// Warnings name settings that are accepted but have no effect yet, one line each.
	Warnings []string
}

// table is the settings of one program.
type table struct {
	usage  string // the first lines of --help
	fields []*field
	// judge looks at several settings together once each is valid by itself; may be nil.
	judge func() []error
}

// field gives the row of that name; asking for another one is our own mistake.
func (t *table) field(name string) *field {
	for _, f := range t.fields {
		if f.name == name {
			return f
		}
	}
	panic("config: no field " + name)
}

// load fills the settings from all origins. lookupEnv is os.LookupEnv in a
// program. The error joins every wrong value, one line each.
func (t *table) load(args []string, lookupEnv func(string) (string, bool)) (Result, error) {
	var file string
	var check, printing, version bool
	flags := t.flagSet()
	flags.StringVar(&file, "config", "", "YAML file with any of these settings")
	flags.BoolVar(&check, "check-config", false, "judge the configuration and exit with 0 (good) or 1 (the errors say what is wrong)")
	flags.BoolVar(&printing, "print-config", false, "print the effective configuration as YAML and exit")
	flags.BoolVar(&version, "version", false, "print the version and exit")
	help := t.usage + "\n" + flags.FlagUsagesWrapped(110) + "\n" + precedenceHelp

	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return Result{Action: Print, Text: help}, nil
	} else if err != nil {
		return Result{}, err
	}
	if flags.NArg() > 0 {
		return Result{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if version {
		return Result{Action: Version}, nil
	}
	if value, ok := lookupEnv("FRESHMESH_CONFIG"); ok && file == "" {
		file = value
	}
	if printing { // also what is not complete yet: printing is how one finds out
		t.judge = nil
	}
	if err := t.fill(file, lookupEnv); err != nil {
		if check {
			return Result{Action: Check}, err
		}
		return Result{}, err
	}
	switch {
	case printing:
		text, err := t.yaml()
		return Result{Action: Print, Text: text}, err
	case check:
		return Result{Action: Check}, nil
	}
	return Result{Action: Run}, nil
}

// flagSet has a flag for each setting, in the order of the table.
func (t *table) flagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	for _, f := range t.fields {
		flag := flags.VarPF(flagValue{f}, f.name, "", f.usage)
		if f.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return flags
}

const precedenceHelp = `Every setting is also an environment variable (--xds-address: FRESHMESH_XDS_ADDRESS) and a
key of the YAML file (xds.address). A flag wins over the environment, which wins over the file.

Exit code 0: it did what it was asked to, 1: it failed, 2: the command line or the configuration is wrong.
`

// fill applies the origins from the weakest to the strongest, then judges the outcome.
func (t *table) fill(file string, lookupEnv func(string) (string, bool)) error {
	var wrong []error
	if file != "" {
		wrong = append(wrong, t.readFile(file)...)
	}
	for _, f := range t.fields {
		if value, ok := lookupEnv(f.env()); ok && value != "" {
			wrong = append(wrong, f.take(f.env(), []string{value}))
		}
		if f.flags != nil {
			wrong = append(wrong, f.take("--"+f.name, f.flags))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	for _, f := range t.fields {
		wrong = append(wrong, f.verify())
	}
	if t.judge != nil {
		wrong = append(wrong, t.judge()...)
	}
	return errors.Join(wrong...)
}

// where names the origin of a setting for a message: "--manifests" or "manifests (FILE:3: manifests)".
func (f *field) where() string {
	if strings.HasPrefix(f.origin, "--") {
		return f.origin
	}
	return "--" + f.name + " (" + f.origin + ")"
}
