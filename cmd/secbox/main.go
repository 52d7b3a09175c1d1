// Command secbox is the user's program: it speaks with a core-api, which runs elsewhere or on this machine. Beside version and help it has
// two sub-commands: mcp lets a desktop host start secbox as an MCP server over stdio, runner serves a directory of this machine as its
// user's sandbox.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"secbox/buildinfo"
	"secbox/fault"
	"secbox/sandbox/process"
)

// version is set when a release is linked.
var version = "0.1.0-dev"

func main() {
	process.Main() // the commands of a runner are run by this program, started once more
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// endings are the signals at which the program ends in order. A terminal that is closed is one, unless whoever started us, as nohup does, has
// said that it is none.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// run is main without the process around it: it returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "secbox",
		Short:         "Uses a core-api from this machine",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(mcpCommand(getenv), runnerCommand(getenv), &cobra.Command{
		Use: "version", Short: "Print the version, and from which commit it was built", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "secbox", buildinfo.Describe(version))
		},
	})
	err := root.ExecuteContext(ctx)
	var e *fault.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		fmt.Fprintln(stderr, "secbox:", e.Message)
		return fault.ExitCode(e.Code)
	default: // cobra's own: a wrong flag or sub-command
		fmt.Fprintln(stderr, "secbox:", err)
		fmt.Fprintln(stderr, "Try `secbox --help`.")
		return 2
	}
}
