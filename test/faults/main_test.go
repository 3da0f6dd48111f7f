package faults

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// table is where the full run writes its report; a short run has none.
var table = flag.String("table", "", "run every fault against every client with default intervals, and write the report to this `file`")

// programs is the directory with the programs under test.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	// Worlds mostly wait, so several run at once whatever the number of cores.
	parallel := "6"
	if *table != "" {
		parallel = "4"
	}
	err := flag.Set("test.parallel", parallel)
	if err == nil {
		err = build()
	}
	if err != nil {
		remove()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

func remove() { _ = os.RemoveAll(programs) } // of no use to anybody

// build builds the programs. Each needs a process, to be stopped and killed.
func build() (err error) {
	if programs, err = os.MkdirTemp("", "faults-"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", programs+string(filepath.Separator),
		"github.com/freshmesh/freshmesh/cmd/xds-server", "github.com/freshmesh/freshmesh/cmd/dataplane")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, output)
	}
	return nil
}
