package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

// TestMain also plays the program that signals are sent to.
func TestMain(m *testing.M) {
	switch os.Getenv("PROGRAM_TEST_CHILD") {
	case "obedient":
		os.Exit(This("child").Run(context.Background(), config.Log{Level: "info", Format: "text"}, nil, func(ctx context.Context, _ hclog.Logger) error {
			fmt.Println("ready")
			<-ctx.Done()
			return nil
		}))
	case "stubborn":
		os.Exit(This("child").Run(context.Background(), config.Log{Level: "info", Format: "text"}, nil, func(ctx context.Context, _ hclog.Logger) error {
			fmt.Println("ready")
			<-ctx.Done()
			fmt.Println("asked")
			select {}
		}))
	}
	goleak.VerifyTestMain(m)
}

// child starts this test program in a role and gives it with a function that waits for a line of its output.
func child(t *testing.T, role string) (*exec.Cmd, func(line string)) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "PROGRAM_TEST_CHILD="+role)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func(line string) {
		t.Helper()
		buffer := make([]byte, len(line)+1)
		if _, err := out.Read(buffer); err != nil || string(buffer) != line+"\n" {
			t.Fatalf("child wrote %q (%v), want %q", buffer, err, line)
		}
	}
}

func TestFirstSignalEndsTheContext(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd, expect := child(t, "obedient")
		expect("ready")
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

func TestSecondSignalEndsTheProcess(t *testing.T) {
	cmd, expect := child(t, "stubborn")
	expect("ready")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("asked")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("%v, want exit code 130", err)
	}
}

func TestDispatch(t *testing.T) {
	commands := []Command{
		{"serve", "serve things", func(_ context.Context, p Process, args []string) int {
			fmt.Fprintln(p.Stdout, "serve", args)
			return OK
		}},
		{"audit", "look at things", func(_ context.Context, p Process, args []string) int {
			fmt.Fprintln(p.Stdout, "audit", args)
			return Failed
		}},
	}
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string // each must begin so
	}{
		{nil, Usage, "", "Usage: mesh COMMAND"},
		{[]string{"--help"}, OK, "Usage: mesh COMMAND", ""},
		{[]string{"help"}, OK, "Usage: mesh COMMAND", ""},
		{[]string{"version"}, OK, "mesh dev", ""},
		{[]string{"serve", "--a"}, OK, "serve [--a]", ""},
		{[]string{"--a", "b"}, OK, "serve [--a b]", ""},
		{[]string{"audit"}, Failed, "audit []", ""},
		{[]string{"drain"}, Usage, "", `mesh: command "drain" is not built yet`},
		{[]string{"sreve"}, Usage, "", `mesh: unknown command "sreve"`},
	} {
		var stdout, stderr bytes.Buffer
		p := Process{Name: "mesh", Stdout: &stdout, Stderr: &stderr}
		code := p.Dispatch(t.Context(), test.args, commands, "drain")
		if code != test.code || !strings.HasPrefix(stdout.String(), test.stdout) || !strings.HasPrefix(stderr.String(), test.stderr) {
			t.Errorf("%v: code %d, stdout %q, stderr %q", test.args, code, &stdout, &stderr)
		}
		if (test.stdout == "") != (stdout.Len() == 0) || (test.stderr == "") != (stderr.Len() == 0) {
			t.Errorf("%v: the wrong stream: stdout %q, stderr %q", test.args, &stdout, &stderr)
		}
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	var stderr bytes.Buffer
	p := Process{Name: "mesh", Stderr: &stderr}
	code, run := p.Configured(config.Result{}, errors.Join(errors.New("a"), errors.New("b")))
	if code != Usage || run || stderr.String() != "mesh: a\nmesh: b\n" {
		t.Errorf("code %d, run %v, %q", code, run, &stderr)
	}
}
