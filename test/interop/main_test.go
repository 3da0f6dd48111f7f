package interop

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, for other processes and their timers: all at once, whatever the number of cores.
	if err := flag.Set("test.parallel", "16"); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
