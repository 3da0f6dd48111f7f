package inject

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// The exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// maxInput bounds what is read: more is some other file.
const maxInput = 256 << 20

// Main is the whole command; args are those after "inject". The documents go to
// stdout, the notes to stderr. The exit code is 0, 1 when the documents cannot
// be read or are wrong (nothing was written then), or 2 for a wrong command line.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	complain := func(code int, err error) int {
		fmt.Fprintf(stderr, "xds-server inject: %v\n", err)
		return code
	}
	o, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return complain(exitUsage, err)
	}
	in, err := o.read(stdin)
	if err != nil {
		return complain(exitFailed, err)
	}
	result, err := Documents(in, o.config)
	if err != nil {
		return complain(exitFailed, fmt.Errorf("%s: %w", o.file, err))
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(stderr, "xds-server inject: warning:", w)
	}
	if !o.quiet {
		for _, note := range result.Notes {
			fmt.Fprintln(stderr, note)
		}
	}
	if _, err := stdout.Write(result.Text); err != nil {
		return complain(exitFailed, err)
	}
	return exitOK
}

// options are what the command line says.
type options struct {
	file   string
	quiet  bool
	config Config
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var configMap string
	flags := pflag.NewFlagSet("inject", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintf(usage, "Usage: xds-server inject -f FILE|- [flags]\n\nAdds the proxy to the workloads among YAML documents, as the admission policy does, and\n"+
			"writes all documents to standard output. Exit code 0, 1: nothing was written, 2: wrong command line.\n\n%s", flags.FlagUsages())
	}
	flags.StringVarP(&o.file, "filename", "f", "", "`FILE` with YAML or JSON documents, - for standard input")
	flags.StringVar(&configMap, "config-map", "", "`FILE` with the ConfigMap \"injection\" of the install, in place of the defaults below; flags win over it")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "do not say what was done; warnings are said all the same")
	values := make([]*string, len(settings))
	for i, s := range settings {
		values[i] = flags.String(s.name, s.standard, s.usage)
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.file == "":
		return o, errors.New("give -f FILE, or -f - for standard input")
	}
	o.config = DefaultConfig()
	if configMap != "" {
		var err error
		if o.config, err = readConfigMap(configMap); err != nil {
			return o, err
		}
	}
	for i, s := range settings {
		if flags.Changed(s.name) {
			if err := s.set(&o.config, *values[i]); err != nil {
				return o, fmt.Errorf("--%s: %w", s.name, err)
			}
		}
	}
	return o, nil
}

func (o *options) read(stdin io.Reader) ([]byte, error) {
	from := stdin
	if o.file != "-" {
		file, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer file.Close() // read only: nothing can be lost
		from = file
	}
	in, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	if len(in) > maxInput {
		return nil, fmt.Errorf("%s: larger than %d bytes", o.file, maxInput)
	}
	return in, nil
}
