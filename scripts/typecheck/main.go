// Typecheck checks the types of this module for another system: typecheck GOOS/GOARCH PACKAGE…. Of
// the named packages, which patterns of go list may be, it checks the tests too, of all others the
// code only. It reads sources and compiles nothing: for one system that takes 10 s of CPU time, and
// go list -export, which compiles every package and its dependencies anew, takes 120 s.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || strings.Count(args[0], "/") != 1 {
		return fmt.Errorf("usage: typecheck GOOS/GOARCH PACKAGE [PACKAGE ...]")
	}
	system, arch, _ := strings.Cut(args[0], "/")
	config := packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes |
			packages.NeedTypesSizes | packages.NeedSyntax,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}
	if err := check(config, "./..."); err != nil {
		return err
	}
	config.Tests = true
	return check(config, args[1:]...)
}

// check prints the errors of the packages and of all that they import.
func check(config packages.Config, patterns ...string) error {
	loaded, err := packages.Load(&config, patterns...)
	if err != nil {
		return err
	}
	if len(loaded) == 0 {
		return fmt.Errorf("%s: no such packages", strings.Join(patterns, " "))
	}
	if n := packages.PrintErrors(loaded); n > 0 {
		return fmt.Errorf("%d errors", n)
	}
	return nil
}
