// Command secbox is the user's program, a client of a core-api on this or another machine. secbox
// exec runs a command there, and ls, show, logs, artifacts, cancel and wait work on execs; secbox
// mcp is an MCP server over stdio for desktop hosts; secbox runner serves a directory of this
// machine as its user's sandbox; secbox registry publishes and installs skills; secbox audit
// verifies proofs of execs and follows the transparency log. The package parses flags, makes
// requests, passes MCP messages and prints; a runner's work belongs to sandbox/remote/machine, and
// the checks of proofs to audit/translog.
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

	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/internal/cmdline"
	"secbox/sandbox/process"
)

const version = buildinfo.Version

func main() {
	process.Main() // does not return in a worker, which this program starts to run commands
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, stop) // a second signal ends a program that waits, such as for the writer of a pipe
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// endings returns the signals that end the program. SIGHUP is one, unless the starter ignores it,
// as nohup does.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(getenv)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	called, err := cmdline.Execute(ctx, root)
	stderr = harmless{to: stderr} // errors have a server's words
	e, known := errors.AsType[*fault.Error](err)
	ended, checked := errors.AsType[exit](err)
	switch {
	case err == nil:
		return 0
	case checked:
		if ended.message != "" {
			fmt.Fprintln(stderr, "secbox:", ended.message)
		}
		return ended.code
	case known:
		fmt.Fprintln(stderr, "secbox:", e.Message)
		return fault.ExitCode(e.Code)
	default: // from cobra: a wrong flag or sub-command
		fmt.Fprintln(stderr, "secbox:", err)
		fmt.Fprintf(stderr, "Try `%s --help`.\n", called.CommandPath())
		return 2
	}
}

func newRoot(getenv func(string) string) *cobra.Command {
	root := &cobra.Command{
		Use:     "secbox",
		Short:   "The client of secbox: uses a server (core-api) from this machine",
		Version: version,
		Example: `  secbox exec -- python3 -c 'print(6 * 7)'
  secbox registry search weather
  secbox audit check exec.proof.json --key log.pub`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, command := range []func(func(string) string) *cobra.Command{
		execCommand, lsCommand, showCommand, logsCommand, artifactsCommand, cancelCommand, waitCommand, policyCommand, sessionCommand,
		skillsCommand, loginCommand,
	} {
		root.AddCommand(command(getenv))
	}
	root.AddCommand(
		mcpCommand(getenv), runnerCommand(getenv), registryCommand(getenv), auditCommand(getenv), &cobra.Command{
			Use: "version", Short: "Print the version, and from which commit it was built", Example: "  secbox version", Args: cobra.NoArgs,
			Run: func(cmd *cobra.Command, _ []string) {
				fmt.Fprintln(cmd.OutOrStdout(), "secbox", buildinfo.Describe())
			},
		})
	return root
}
