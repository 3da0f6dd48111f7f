package bootstrap

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

// Main is the whole command; args are those after "bootstrap". The exit code is
// 0, 1 when the file could not be written, or 2 for a wrong command line.
func Main(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	var text []byte
	if err == nil {
		text, err = o.bootstrap()
	}
	if err != nil {
		fmt.Fprintf(stderr, "xds-server bootstrap: %v\n", err)
		return exitUsage
	}
	if o.Output == "" {
		_, err = stdout.Write(text)
	} else {
		err = os.WriteFile(o.Output, text, 0o644) //nolint:gosec // nothing in it is a secret, and the proxy's user must read it
	}
	if err != nil {
		fmt.Fprintf(stderr, "xds-server bootstrap: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func (o Options) bootstrap() ([]byte, error) {
	if o.Client == ForEnvoy {
		return Envoy(o)
	}
	if o.Client == ForGRPC {
		return GRPC(o)
	}
	return nil, o.complete()
}
