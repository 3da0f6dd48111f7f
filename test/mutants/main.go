// Command mutants proves that the tests can fail: it puts one deliberate defect
// after the other into the code, runs the tests that must find it, and fails
// when one finds nothing, when a defect no longer fits the code, or when a test
// does not compile.
//
// The defects are patches in test/mutants/patches. Above its diff each says in a
// line what it is, and in lines "Caught-By: PACKAGE PATTERN [FLAGS]" which tests
// must fail, each of them. The sources are never changed: the patched files are laid
// over them at build time (go help build, -overlay).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	only := flag.String("run", "", "only the mutants whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := judge(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// judge runs every mutant, prints a line for each test, and gives an error when any was not caught.
func judge(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	all, err := load(root)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if pattern.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if err := unharmed(ctx, root, chosen); err != nil {
		return err
	}
	survived := 0
	for _, m := range chosen {
		n, err := m.survives(ctx, root)
		if err != nil {
			return err
		}
		survived += n
	}
	if survived > 0 {
		return fmt.Errorf("%d tests found nothing", survived)
	}
	fmt.Printf("all of %d mutants are caught\n", len(chosen))
	return nil
}

// unharmed runs the tests on the code as it is: one that fails there proves nothing.
func unharmed(ctx context.Context, root string, all []mutant) error {
	done := map[test]bool{}
	for _, m := range all {
		for _, t := range m.caughtBy {
			if done[t] {
				continue
			}
			done[t] = true
			r := t.run(ctx, root, "")
			if r.err != nil {
				return fmt.Errorf("%s without any mutant: %w", t, r.err)
			}
			if len(r.failed) > 0 {
				return fmt.Errorf("%s fails without any mutant:\n%s", t, r.output)
			}
			fmt.Printf("%-26s %-72s passes\n", "-", t)
		}
	}
	return nil
}
